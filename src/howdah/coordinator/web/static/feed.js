// Follows the job: one event stream; where a proxy holds streams back, by asking again and again.

import { store } from "./store.js";

const HELLO_MS = 4000; // the stream's first event must be here within this, else it is being buffered
const POLL_MS = 1500; // a new log line is to be seen within three seconds
const RETRY_MS = [500, 1000, 2000, 4000, 8000];

class Feed extends EventTarget {
  /** Which log to follow: {task, attempt, offset, pinned}, or null. Kept up to date by its part. */
  log = null;
  state = "wait";
  #source = null;
  #timer = null;
  #polling = false;
  #fails = 0;
  #round = 0;

  start() {
    document.addEventListener("visibilitychange", () => (document.hidden ? this.#pause() : this.restart()));
    this.restart();
  }

  /** Another log is wanted, or the page is looked at again. */
  restart() {
    this.#pause();
    if (document.hidden) return;
    if (this.#polling) this.#poll();
    else this.#open();
  }

  #pause() {
    this.#round += 1;
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }

  #query() {
    const query = new URLSearchParams({ since: store.version, after: store.after });
    if (this.log) {
      query.set("log", this.log.task);
      query.set("offset", this.log.offset);
      if (this.log.attempt) query.set("attempt", this.log.attempt);
      if (this.log.pinned) query.set("pinned", "1");
    }
    return query;
  }

  #open() {
    const round = this.#round;
    const source = new EventSource(`api/v1/stream?${this.#query()}`);
    this.#source = source;
    const mine = (work) => (event) => {
      if (round === this.#round) work(event?.data ? JSON.parse(event.data) : null);
    };
    this.#timer = setTimeout(
      mine(() => {
        // Nothing came through, not even the greeting: something in between collects the stream.
        this.#polling = true;
        this.restart();
      }),
      HELLO_MS,
    );
    source.addEventListener("hello", mine(() => {
      clearTimeout(this.#timer);
      this.#fails = 0;
      this.#become("live");
    }));
    source.addEventListener("status", mine((patch) => store.status(patch)));
    source.addEventListener("record", mine((record) => store.record(record)));
    source.addEventListener("log", mine((change) => this.#log(change)));
    source.addEventListener("bye", mine(() => this.#lost()));
    source.addEventListener("error", mine(() => this.#lost()));
  }

  #log(change) {
    this.dispatchEvent(new CustomEvent("log", { detail: change }));
  }

  #lost() {
    this.#pause();
    if (store.over && !store.lingers) {
      this.#become("over");
      return;
    }
    // A first ask tells why: signed out, or nobody there.
    this.#timer = setTimeout(() => this.#poll(), RETRY_MS[Math.min(this.#fails, RETRY_MS.length - 1)]);
    this.#fails += 1;
    if (this.#fails > 1) this.#become("lost");
  }

  async #poll() {
    const round = this.#round;
    let changes;
    try {
      const response = await fetch(`api/v1/changes?${this.#query()}`, { signal: AbortSignal.timeout(15000) });
      if (round !== this.#round) return;
      if (response.status === 401) {
        this.#become("out");
        return;
      }
      if (!response.ok) throw new Error(response.statusText);
      changes = await response.json();
    } catch {
      if (round === this.#round) this.#lost();
      return;
    }
    if (round !== this.#round) return;
    this.#fails = 0;
    if (changes.status) store.status(changes.status);
    changes.records.forEach((record) => store.record(record));
    if (changes.log) this.#log(changes.log);
    if (!this.#polling) {
      this.#open();
      return;
    }
    this.#become("poll");
    const more = changes.records.length >= 1000 || (changes.log && changes.log.text.length > 200000);
    this.#timer = setTimeout(() => round === this.#round && this.#poll(), more ? 0 : POLL_MS);
  }

  #become(state) {
    if (state === this.state) return;
    this.state = state;
    this.dispatchEvent(new CustomEvent("state", { detail: state }));
  }
}

export const feed = new Feed();

/** Ask the API; throws an Error with the API's own words. */
export async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(`api/v1/${path}`, options);
  } catch {
    throw new Error("The coordinator does not answer: the job may have ended, or the network is down.");
  }
  if (response.ok) return response.json();
  let problem = `${response.status} ${response.statusText}`;
  try {
    problem = (await response.json()).error ?? problem;
  } catch {
    /* an answer of a proxy in between */
  }
  throw new Error(problem);
}

export const post = (path, body) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  });
