// @ts-check
/** The departure board: flights through our own protocol, at a pace that is kept by asking for more or not. */

import { Clock } from "./clock.js";
import { Controls, criteriaOf, PACES, paceInWords } from "./controls.js";
import { Drawing, number, Trend } from "./drawing.js";
import { flapLine, setStill, step, turn } from "./flaps.js";
import { clockTime, day, Flights, readFlight } from "./flights.js";
import { connect } from "./penstock.js";
import { Departures, Landed } from "./rows.js";

const TODAY = "today"; // the log in which the demo goes on after the million
const SYSTEM = "$system"; // what becomes of the logs of a store
const BACK = 150; // versions before the end of that log with which a board that goes along begins
const MINUTE = 60_000;
const SHOW_EVERY_MS = 160;
const STATISTICS_EVERY_MS = 1000;
const AGAIN_MS = 1500;
const EARLY = 14 * MINUTE; // before the first departure a replay begins
const GENTLE = 12; // minutes a second above which nothing glides or turns
const LINGER_MS = 3200;
const STARTING_OVER = new Set(["CURSOR_INVALID", "CURSOR_FOREIGN", "CURSOR_FORKED", "HISTORY_PRUNED", "LOG_NOT_FOUND"]);

/** @type {(id: string) => any} */
const find = (id) => document.getElementById(id);

class Board {
  client = connect(new URL("ws", document.baseURI));
  clock = new Clock();
  flights = new Flights();
  /** @type {import("./penstock.js").Changes | null} */
  changes = null;
  /** Called with each event as it is shown; for whoever looks on from the console.
   * @type {((event: import("./penstock.js").ChangeEvent) => void) | null} */
  onevent = null;
  handled = 0;
  paused = false;
  /** @type {any} */
  statistics = null;

  #controls = new Controls(find("controls"), (choice, what) => this.#choose(choice, what));
  #departures = new Departures(find("departures"), find("blanks"));
  #landed = new Landed(find("landed"));
  #drawing = new Drawing(find("drawing"));
  #trend = new Trend(find("trend"));
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #hour = flapLine(5, "large");
  #run = 0;
  /** @type {string | undefined} */
  #follows;
  #synthetic = false;
  #fresh = true; // whether the clock is still to be set to the first flight
  /** @type {number | null} */
  #place = null;
  /** @type {number | null} */
  #lag = null;
  #lagUnit = "changes";
  #shownAt = 0;
  #page = 0; // the page's own time, which stands while it is paused
  #frameAt = performance.now();
  #rate = { at: performance.now(), handled: 0, value: 0 };
  #said = "";

  async start() {
    find("clock").prepend(this.#hour);
    find("pause").addEventListener("click", () => this.pause(!this.paused));
    document.addEventListener("keydown", (event) => this.#key(event));
    const says = this.#controls.restore();
    await this.#look();
    if (!says && this.statistics?.logs[TODAY]) this.#controls.set("mode", "live");
    setInterval(() => this.#look(), STATISTICS_EVERY_MS);
    this.#pace();
    this.follow(null);
    requestAnimationFrame((now) => this.#frame(now));
  }

  /** Stops asking, or asks again. The clock stands meanwhile. */
  pause(/** @type {boolean} */ paused) {
    this.paused = paused;
    this.clock.running = !paused;
    if (paused) this.changes?.pause();
    else this.changes?.resume();
    find("pause").setAttribute("aria-pressed", String(paused));
    find("pause-text").textContent = paused ? "Resume" : "Pause";
    this.#show();
  }

  /**
   * Subscribes to what is chosen, and shows it until something else is chosen.
   *
   * @param {string | null} since Null to begin where the mode begins.
   */
  async follow(since) {
    const run = (this.#run += 1);
    this.changes?.return();
    this.clock.release();
    if (since === null) this.#empty();
    const place = since === null ? this.#start() : { since };
    const log = (this.#follows = this.#log());
    const changes = this.client.changes({
      ...place,
      log,
      criteria: criteriaOf(this.#controls.choice),
      content: "BODY",
      window: this.#window(),
      maxEvents: 256,
      heartbeatMs: 500,
    });
    this.changes = changes;
    if (this.paused) changes.pause();
    try {
      for await (const event of changes) {
        await this.#handle(event, run);
        if (run !== this.#run) return;
      }
      if (run === this.#run) this.#later(changes.cursor, run);
    } catch (error) {
      if (run !== this.#run) return;
      const code = /** @type {any} */ (error).code;
      this.#say(`The server ended the subscription: ${/** @type {Error} */ (error).message}`);
      this.#later(STARTING_OVER.has(code) ? null : changes.cursor, run);
    }
  }

  /** @param {import("./penstock.js").ChangeEvent} event @param {number} run */
  async #handle(event, run) {
    const flight = readFlight(event);
    if (flight !== null) {
      if (this.#fresh) {
        this.#fresh = false;
        this.clock.set(this.#live ? flight.time : Math.max(flight.time, flight.scheduled - EARLY));
      }
      const wait = this.clock.reach(flight.time);
      if (wait !== undefined) await wait;
      if (run !== this.#run) return;
      this.#synthetic = flight.synthetic;
      this.flights.apply(flight, this.#page);
    }
    this.handled += 1;
    this.#place = event.version + Math.min(1, (event.index + 1) / event.count);
    this.onevent?.(event);
  }

  #later(/** @type {string | null} */ since, /** @type {number} */ run) {
    setTimeout(async () => {
      await this.#look();
      if (run === this.#run) this.follow(since);
    }, AGAIN_MS);
  }

  get #live() {
    return this.#controls.choice.mode === "live";
  }

  /** The log of the mode: the demo has a second one once it goes on after the million. */
  #log() {
    const names = Object.keys(this.statistics?.logs ?? {});
    const first = names.find((name) => name !== TODAY && name !== SYSTEM);
    return this.#live && names.includes(TODAY) ? TODAY : first;
  }

  /** @returns {Pick<import("./penstock.js").Wish, "start">} */
  #start() {
    if (!this.#live) return { start: "earliest" };
    const today = this.statistics?.logs[TODAY];
    if (today === undefined) return { start: "latest" };
    return { start: { version: Math.max(1, today.oldest.version, today.head.version - BACK) } };
  }

  #empty() {
    this.flights.clear();
    this.#fresh = true;
    this.#place = null;
    this.#trend.clear();
    this.#lag = null;
  }

  /** Minutes of the flights' time in a second. */
  get #minutes() {
    return this.#live ? Infinity : PACES[this.#controls.choice.pace];
  }

  #pace() {
    this.clock.rate = (this.#minutes * MINUTE) / 1000;
    if (this.changes) this.changes.window = this.#window();
    const words = this.#live ? "along with the log" : paceInWords(this.#minutes);
    find("pace-text").textContent = words;
    find("pace").setAttribute("aria-valuetext", words);
    find("pace").disabled = this.#live;
    this.#calm();
  }

  /** A window of about two seconds: at the busiest there are four events in a minute. */
  #window() {
    if (this.#live) return this.#log() === TODAY ? 16 : 1024;
    return Math.min(2048, Math.max(16, this.#minutes * 8));
  }

  /** @param {import("./controls.js").Choice} choice @param {string} what */
  #choose(choice, what) {
    this.#pace();
    if (what === "pace") return;
    if (what === "mode") {
      this.follow(null);
    } else {
      const { airport, airline } = choice;
      this.flights.keep((one) => (!airport || one.origin === airport) && (!airline || one.carrier === airline), this.clock.now);
      this.follow(this.changes?.cursor ?? null);
    }
    this.#show();
  }

  /** Asks the server how log and ring are; without an answer the drawing keeps the last one. */
  async #look() {
    try {
      const answer = await fetch("statistics", { headers: { accept: "application/json" } });
      if (answer.ok) this.statistics = served(await answer.json());
    } catch {
      return; // the connection tells that the server is away
    }
    // Whoever goes along with the log goes along into the second one, as soon as there is one.
    if (this.changes && this.#live && this.#log() === TODAY && this.#follows !== TODAY) this.follow(null);
    this.#weigh();
  }

  /** Finds this subscription among those of the server, and how far it lags. */
  #weigh() {
    const log = this.statistics?.logs[this.#log() ?? ""];
    if (!log || !this.changes) return;
    const mine = ownPublisher(log, criteriaOf(this.#controls.choice));
    const own = mine?.subscriptions.find((/** @type {any} */ one) => one.position.cursor === this.changes?.received);
    const one = own ?? (mine?.subscriptionCount === 1 ? mine.subscriptions[0] : null);
    // Where nothing matches no event comes, but the server moves on all the same.
    if (one && !this.changes.buffered && !one.position.index) this.#place = Math.max(this.#place ?? 0, one.position.version);
    const versions = this.#place === null ? null : Math.max(0, Math.round(log.head.version - this.#place));
    this.#lagUnit = one && one.lag !== null ? "changes" : "versions";
    this.#lag = one && one.lag !== null ? one.lag + this.changes.buffered : versions;
    if (this.#lag !== null) this.#trend.add(this.#lag);
    const now = performance.now();
    this.#rate = { at: now, handled: this.handled, value: ((this.handled - this.#rate.handled) / (now - this.#rate.at)) * 1000 };
  }

  /** @param {number} now */
  #frame(now) {
    this.clock.tick(now - this.#frameAt);
    if (!this.paused) this.#page += now - this.#frameAt;
    this.#frameAt = now;
    step(now);
    if (now - this.#shownAt >= SHOW_EVERY_MS) this.#show();
    requestAnimationFrame((next) => this.#frame(next));
  }

  #calm() {
    const quick = this.#live ? this.#log() !== TODAY : this.#minutes > GENTLE;
    setStill(this.#still.matches || quick);
    document.documentElement.classList.toggle("quick", quick);
    return !quick && !this.#still.matches;
  }

  #show() {
    this.#shownAt = performance.now();
    const now = this.clock.now;
    const gentle = this.#calm();
    const rows = Number(getComputedStyle(find("departures")).getPropertyValue("--rows"));
    if (!Number.isNaN(now)) {
      turn(this.#hour, clockTime(now));
      find("date").textContent = day(now);
      this.flights.keep(() => true, now);
    }
    const at = { now, page: this.#page, lingerMs: gentle ? LINGER_MS : 700 };
    this.#departures.show(Number.isNaN(now) ? [] : this.flights.departures(rows, at), now, gentle);
    this.#landed.show(this.flights.landed(8));
    this.#count();
    this.#tell();
  }

  #count() {
    const { departed, arrived, cancelled } = this.flights.counts;
    const numbers = { flying: this.flights.flying, departed, arrived, cancelled };
    for (const [name, value] of Object.entries(numbers)) find(`count-${name}`).textContent = number(value);
    find("source").textContent = this.#synthetic ? "synthetic: 2013 moved to today" : "the flights of 2013, as they went";
    document.documentElement.classList.toggle("empty", this.handled === 0);
  }

  /** The state and the numbers beside the drawing. */
  #tell() {
    const { changes, client } = this;
    const log = this.statistics?.logs[this.#log() ?? ""];
    const mine = log && ownPublisher(log, criteriaOf(this.#controls.choice));
    const state = changes?.subscribed ? (changes.state ?? ownState(mine, changes)) : null;
    const connected = client.status === "open";
    document.documentElement.dataset.state = connected ? (state ?? "") : "AWAY";
    find("state").textContent = connected ? (state ?? "\u2026") : "RECONNECTING";
    find("state-text").textContent = !connected
      ? "it will go on where it was"
      : this.paused && state === "LIVE"
        ? "paused: the ring still covers you"
        : this.paused
          ? "paused: the ring has moved on"
          : state === "RESYNC"
            ? "catching up from the log on disk"
            : "served from memory";
    find("lag").textContent = this.#lag === null ? "\u2013" : `${number(this.#lag)}`;
    find("lag-unit").textContent = this.#lagUnit === "changes" ? "changes behind" : "versions behind";
    find("demand").textContent = number(changes?.demand ?? 0);
    find("received").textContent = number(this.handled);
    find("rate").textContent = `${number(Math.round(this.#rate.value))} a second`;
    if (log) {
      find("ring").textContent = mine ? number(mine.ring.events) : "0";
      find("ring-most").textContent = `of ${number(log.ringEvents)} events`;
      find("watermark").textContent = number(log.watermark);
      find("log-name").textContent = `version of ${this.#log()}`;
      this.#drawing.show({
        oldest: log.oldest.version,
        head: log.head.version,
        ringStart: mine ? placeOf(mine.ring.start) : null,
        ringEvents: mine?.ring.events ?? 0,
        ringMost: log.ringEvents,
        cursor: this.#place === null ? null : Math.min(this.#place, log.head.version),
        state,
        here: changes?.buffered ?? 0,
        demand: changes?.demand ?? 0,
      });
    }
    this.#say(connected ? (state ?? "") : "Reconnecting");
  }

  /** Tells those who listen to the page, once for each news. */
  #say(/** @type {string} */ news) {
    if (news === this.#said || news === "") return;
    this.#said = news;
    find("news").textContent = news;
  }

  #key(/** @type {KeyboardEvent} */ event) {
    const busy = event.target instanceof Element && event.target.closest("input, select, button, a, summary");
    if (event.key !== " " || event.ctrlKey || event.altKey || event.metaKey || busy) return;
    event.preventDefault();
    this.pause(!this.paused);
  }
}

/** Statistics without the logs that have ended by themselves, of which they tell no more than that.
 * @param {any} statistics */
function served(statistics) {
  const logs = Object.entries(statistics.logs).filter(([_, log]) => log.failure === undefined);
  return { ...statistics, logs: Object.fromEntries(logs) };
}

/** @param {any} log @param {object[]} criteria */
function ownPublisher(log, criteria) {
  const wanted = canonical(criteria);
  return log.publishers.find((/** @type {any} */ one) => canonical(one.criteria) === wanted) ?? null;
}

/** The state as the statistics have it, for as long as the subscription itself was not told. */
function ownState(/** @type {any} */ publisher, /** @type {import("./penstock.js").Changes} */ changes) {
  const own = publisher?.subscriptions.find((/** @type {any} */ one) => one.position.cursor === changes.received);
  const only = publisher?.subscriptionCount === 1 ? publisher.subscriptions[0] : null;
  return (own ?? only)?.state ?? null;
}

/** @param {{version: number, index: number}} position */
function placeOf({ version, index }) {
  return index ? version + 0.5 : version;
}

/** @param {object[]} criteria */
function canonical(criteria) {
  return JSON.stringify(criteria.map((one) => Object.entries(one).sort()));
}

const board = new Board();
Object.assign(globalThis, { board });
board.start();
