// What the page knows: the job, its tasks, its records. Parts listen to what they show.

class Store extends EventTarget {
  job = null;
  tasks = new Map();
  records = [];
  version = "";
  after = 0;
  skew = 0;

  /** The coordinator's clock, in seconds; stands still once the job is over. */
  now() {
    if (this.job?.lost) return this.records.at(-1)?.time ?? this.job.submitted;
    return this.job?.finished ?? Date.now() / 1000 + this.skew;
  }

  get over() {
    return this.job?.phase === "finished" || this.job?.lost === true;
  }

  /** Programs of a lost job that end by themselves are to be asked after until they have. */
  get lingers() {
    return this.job?.lost === true && [...this.tasks.values()].some((task) => !["succeeded", "ended"].includes(task.state));
  }

  status(patch) {
    this.skew = patch.time - Date.now() / 1000;
    this.version = patch.version;
    const touched = new Set();
    if (patch.full) {
      this.job = patch.job;
      this.tasks = new Map();
    } else {
      Object.assign(this.job, patch.job);
    }
    for (const name of patch.removed) {
      this.tasks.delete(name);
      touched.add(name);
    }
    for (const fields of patch.tasks) {
      const known = this.tasks.get(fields.task);
      if (known) Object.assign(known, fields);
      else this.tasks.set(fields.task, fields);
      touched.add(fields.task);
    }
    if (patch.full || Object.keys(patch.job).length) this.tell("job");
    if (touched.size) this.tell("tasks", { touched, full: patch.full });
  }

  record(record) {
    if (record.seq <= this.after) return;
    this.after = record.seq;
    this.records.push(record);
    this.tell("record", record);
  }

  /** Was a failure put down to the task's present attempt? */
  atFault(task) {
    return (this.job?.failures ?? []).some((f) => f.task === task.task && f.attempt === task.attempt);
  }

  on(name, listener) {
    this.addEventListener(name, (event) => listener(event.detail));
  }

  tell(name, detail = null) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

export const store = new Store();
