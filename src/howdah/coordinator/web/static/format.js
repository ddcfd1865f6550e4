// Numbers and times as people read them.

export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 10) / 10}s`;
  if (s < 60) return `${Math.floor(s)}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m ${Math.floor(s % 60)}s`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}

const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium" });

export const timeOfDay = (seconds) => clock.format(seconds * 1000);
export const moment = (seconds) => (seconds ? day.format(seconds * 1000) : "–");

export function mebibytes(value) {
  if (value === null || value === undefined) return "";
  if (value < 1) return `${Math.round(value * 1024)} KiB`;
  if (value < 1024) return `${value < 10 ? value.toFixed(1) : Math.round(value)} MiB`;
  return `${(value / 1024).toFixed(value < 10240 ? 2 : 1)} GiB`;
}

export const bytes = (value) => (value < 1024 ? `${value} B` : mebibytes(value / 1048576));

export function cores(value) {
  return value === null || value === undefined ? "" : value.toFixed(value < 10 ? 2 : 1);
}

export const percent = (value) => (value === null || value === undefined ? "" : `${Math.round(value * 100)} %`);

export function number(value) {
  if (value === null || value === undefined) return "";
  if (Number.isInteger(value)) return value.toLocaleString("en").replaceAll(",", "\u202f");
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(3);
  return String(Number(value.toPrecision(5)));
}

export const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;

const PHASES = {
  submitted: "Submitted",
  allocating: "Waiting for containers",
  starting: "Starting",
  running: "Running",
  "failure-window": "A failure is being looked at",
  restarting: "Restarting",
  finishing: "Finishing",
  finished: "Finished",
};
const OUTCOMES = { succeeded: "Succeeded", failed: "Failed", stopped: "Stopped", "timed-out": "Timed out" };

/** Word and tone of where the job is. */
export function phase(job) {
  if (job.phase === "finished") {
    const tone = { succeeded: "good", failed: "bad", "timed-out": "bad" }[job.outcome] ?? "idle";
    return { word: OUTCOMES[job.outcome] ?? "Finished", tone, busy: false };
  }
  if (job.lost) return { word: "Lost", tone: "bad", busy: false };
  const tone =
    { running: "live", starting: "prep", allocating: "prep", "failure-window": "warn", restarting: "warn" }[job.phase] ?? "idle";
  return { word: PHASES[job.phase] ?? job.phase, tone, busy: true };
}

const TONES = {
  waiting: "idle",
  launching: "prep",
  idle: "prep",
  preparing: "prep",
  prepared: "prep",
  starting: "prep",
  running: "live",
  stopping: "warn",
  succeeded: "good",
};

/** Word and tone of a task's state. `atFault` says whether a failure was put down to it. */
export function taskState(task, atFault) {
  if (task.state !== "ended") return { word: task.state, tone: TONES[task.state] ?? "idle" };
  if (task.signal) return { word: `ended by ${task.signal}`, tone: atFault ? "bad" : "idle" };
  if (task.exit_code) return { word: `exited ${task.exit_code}`, tone: "bad" };
  return { word: "ended", tone: atFault ? "bad" : "idle" };
}
