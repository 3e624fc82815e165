// @ts-check
/** The departure board: flights through our own protocol, at a pace that is kept by asking for more or not. */

import { Clock } from "./clock.js";
import { Controls, criteriaOf, filterInWords, PACES, paceInWords, wants, within } from "./controls.js";
import { Drawing, number, Passed, Trend } from "./drawing.js";
import { flapLine, setStill, step, turn } from "./flaps.js";
import { clockTime, day, Flights, readFlight } from "./flights.js";
import { connect } from "./penstock.js";
import { Departures, Landed } from "./rows.js";
import { ownPublisher, ownSubscription, placeOf, served, streaming } from "./statistics.js";

const TODAY = "today"; // the log in which the demo goes on after the million
const STAGE = "$demo"; // the log in which the demo says what it does
const BACK = 300; // versions, a minute each, before the end of that log with which a board that goes along begins
const MINUTE = 60_000;
const SHOW_EVERY_MS = 160;
const STATISTICS_EVERY_MS = 1000;
const AGAIN_MS = 1500;
const REFUSED_MS = 10_000;
const AGAIN_WINDOW = 256; // while flights are read again for another filter
const BEHIND_WINDOW = 64; // while a board that goes along has not caught up
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
  #passed = new Passed();
  #still = matchMedia("(prefers-reduced-motion: reduce)");
  #hour = flapLine(5, "large");
  #run = 0;
  /** @type {string | undefined} */
  #follows;
  #synthetic = false;
  #fresh = true; // whether the clock is still to be set to the first flight
  /** Where this mode began. @type {string | null} */
  #begin = null;
  /** What is read again for another filter, and up to which place; it is shown when it is there.
   * @type {{flights: Flights, upto: number} | null} */
  #again = null;
  #filter = this.#controls.choice;
  #since = NaN; // the flights' time from which on they are counted
  /** @type {number | null} */
  #first = null; // the first version
  /** What the demo does, by its own words. @type {string | null} */
  #stage = null;
  #trouble = "";
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
    this.#filter = this.#controls.choice;
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
    document.documentElement.toggleAttribute("data-paused", paused);
    find("paused").hidden = !paused;
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
    const log = (this.#follows = this.#log());
    if (this.client.status === "closed") return this.#later(since, run);
    if (log === undefined && this.statistics !== null) return this.#later(null, run); // the demo serves it soon
    const changes = this.client.changes({
      ...(since === null ? this.#start() : { since }),
      log,
      criteria: criteriaOf(this.#controls.choice),
      content: "BODY",
      window: this.#window(),
      maxEvents: 256,
      heartbeatMs: 500,
    });
    this.changes = changes;
    changes.addEventListener("progress", () => {
      if (run !== this.#run || !changes.subscribed) return;
      this.#begin ??= changes.cursor;
      this.#trouble = "";
      changes.window = this.#window();
    });
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
      this.#trouble = `The server ended the subscription: ${/** @type {Error} */ (error).message}`;
      this.#later(STARTING_OVER.has(code) ? null : changes.cursor, run);
    }
  }

  /** @param {import("./penstock.js").ChangeEvent} event @param {number} run */
  async #handle(event, run) {
    const flight = readFlight(event);
    const place = event.version + Math.min(1, (event.index + 1) / event.count);
    if (this.#again && place > this.#again.upto) this.#caughtUp();
    if (flight !== null && this.#again) {
      this.#again.flights.apply(flight, -Infinity); // not news any more
    } else if (flight !== null) {
      if (this.#fresh) {
        this.#fresh = false;
        this.clock.set(this.#live ? flight.time : Math.max(flight.time, flight.scheduled - EARLY));
      }
      const wait = this.clock.reach(flight.time);
      if (wait !== undefined) await wait;
      if (run !== this.#run) return;
      this.#synthetic = flight.synthetic;
      this.flights.apply(flight, this.#page);
      // The first version of a day that is gone along with tells how things are, with flights of hours before.
      this.#first ??= event.version;
      if (Number.isNaN(this.#since) && (!this.#live || event.version > this.#first)) this.#since = flight.time;
    }
    this.handled += 1;
    this.#place = place;
    this.#passed.add(event.version);
    if (this.#again?.upto === place) this.#caughtUp();
    this.onevent?.(event);
  }

  #caughtUp() {
    if (this.#again) this.flights = this.#again.flights;
    this.#again = null;
    if (this.changes) this.changes.window = this.#window();
  }

  #later(/** @type {string | null} */ since, /** @type {number} */ run) {
    const refused = this.client.status === "closed";
    setTimeout(
      async () => {
        await this.#look();
        if (run !== this.#run) return;
        if (refused) this.client = connect(new URL("ws", document.baseURI));
        this.follow(since);
      },
      refused ? REFUSED_MS : AGAIN_MS,
    );
  }

  /** Follows what the demo says about itself. */
  async #listen() {
    this.#stage = "";
    try {
      for await (const { body } of this.client.changes({ log: STAGE, start: "earliest", content: "BODY", window: 16 })) {
        this.#stage = String(body.text);
      }
    } catch {
      // It has ended, or is not served any more.
    }
    this.#stage = null; // to be followed again as soon as it is there again
  }

  get #live() {
    return this.#controls.choice.mode === "live";
  }

  /** The log of the mode: the demo has a second one once it goes on after the million. */
  #log() {
    const names = Object.keys(this.statistics?.logs ?? {});
    const first = names.find((name) => name !== TODAY && !name.startsWith("$")); // such as $system
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
    this.flights = new Flights();
    this.#fresh = true;
    this.#begin = this.#again = this.#place = this.#first = null;
    this.#since = NaN;
    this.#passed.clear();
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
    if (this.#again) return AGAIN_WINDOW;
    if (this.#live) return this.#log() !== TODAY ? 1024 : this.changes?.state === "RESYNC" ? BEHIND_WINDOW : 16;
    return Math.min(2048, Math.max(16, this.#minutes * 8));
  }

  /** @param {import("./controls.js").Choice} choice @param {string} what */
  #choose(choice, what) {
    this.#pace();
    if (what === "pace") return;
    const narrower = within(choice, this.#filter) && !this.#again;
    this.#filter = choice;
    if (what === "mode") this.follow(null);
    else this.#narrow(choice, narrower);
    this.#show();
  }

  /**
   * Goes on at the same place with a narrower filter; any other one lacks flights that were not wanted until now, so all
   * are read again from where the board began up to that place.
   *
   * @param {import("./controls.js").Choice} choice @param {boolean} narrower
   */
  #narrow(choice, narrower) {
    const upto = this.#again?.upto ?? this.#place;
    this.flights.keep(wants(choice), this.clock.now);
    this.#passed.clear();
    if (narrower || upto === null || this.#begin === null) {
      this.follow(this.changes?.cursor ?? null);
    } else {
      this.#again = { flights: new Flights(), upto };
      this.#place = null;
      this.follow(this.#begin);
    }
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
    if (this.#stage === null && this.statistics?.logs[STAGE] && this.client.status !== "closed") this.#listen();
    if (this.changes && this.#live && this.#log() === TODAY && this.#follows !== TODAY) this.follow(null);
    this.#weigh();
  }

  /** Finds this subscription among those of the server, and how far it lags. */
  #weigh() {
    const log = this.statistics?.logs[this.#log() ?? ""];
    if (!log || !this.changes) return;
    const mine = ownPublisher(log, criteriaOf(this.#controls.choice));
    const one = ownSubscription(mine, this.changes);
    // Where nothing matches no event comes, but the server moves on all the same.
    if (one && !this.changes.buffered && !one.position.index) this.#place = Math.max(this.#place ?? 0, one.position.version);
    const versions = this.#place === null ? null : Math.max(0, Math.round(log.head.version - this.#place));
    this.#lagUnit = one && one.lag !== null ? "changes" : "versions";
    this.#lag = one && one.lag !== null ? one.lag + this.changes.buffered : versions;
    if (this.#again && this.#place !== null && this.#place >= this.#again.upto) this.#caughtUp();
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
    const departures = Number.isNaN(now) ? [] : this.flights.departures(rows, at);
    this.#departures.show(departures, now, gentle);
    this.#landed.show(this.flights.landed(8));
    this.#count();
    this.#tell();
    const notice = this.#notice(departures.length);
    find("notice").textContent = notice;
    find("notice").hidden = notice === "";
    this.#say([this.paused && "Paused", find("state").textContent, notice].filter(Boolean).join(": "));
  }

  /** What is said across the board, as long as the rows do not speak for themselves. */
  #notice(/** @type {number} */ rows) {
    const { status } = this.client;
    if (this.#trouble) return this.#trouble;
    if (status === "waiting" || (status === "connecting" && this.handled)) {
      return "The connection is lost. It is tried again, and the board goes on where it was.";
    }
    if (status === "connecting") return "Connecting\u2026";
    if (rows) return "";
    if (this.#again) return this.paused ? "Resume to read the flights of this filter." : "Reading the flights of this filter\u2026";
    const filter = filterInWords(this.#controls.choice);
    const log = this.statistics?.logs[this.#log() ?? ""];
    if (this.flights.empty && filter && log?.head.version > 1) return `No flights ${filter} so far.`;
    if (this.flights.empty) return this.#stage || "Waiting for the first flights\u2026";
    return "No departures for now.";
  }

  #count() {
    for (const [name, value] of Object.entries(this.flights.counts)) find(`count-${name}`).textContent = number(value);
    find("filter").textContent = filterInWords(this.#controls.choice);
    const since = Number.isNaN(this.#since) ? "\u00a0" : `since ${clockTime(this.#since)}, ${day(this.#since)}`;
    find("since").textContent = since;
    find("source").textContent = this.#synthetic ? "synthetic: 2013 moved to today" : "the flights of 2013, as they went";
  }

  /** The state and the numbers beside the drawing. */
  #tell() {
    const { changes, client } = this;
    const log = this.statistics?.logs[this.#log() ?? ""];
    const mine = log && ownPublisher(log, criteriaOf(this.#controls.choice));
    const state = changes?.subscribed ? (changes.state ?? ownSubscription(mine, changes)?.state ?? null) : null;
    const connected = client.status === "open";
    document.documentElement.dataset.state = connected ? (state ?? "") : "AWAY";
    find("state").textContent = connected ? (state ?? "WAITING") : client.status === "closed" ? "REFUSED" : "RECONNECTING";
    find("state-text").textContent = stateInWords(connected, state, this.paused);
    find("lag").textContent = this.#lag === null ? "\u2013" : `${number(this.#lag)}`;
    find("lag-unit").textContent = this.#lagUnit === "changes" ? "changes behind" : "versions behind";
    find("demand").textContent = number(changes?.demand ?? 0);
    find("received").textContent = number(this.handled);
    find("rate").textContent = `${number(Math.round(this.#rate.value))} a second`;
    const spark = streaming(this.statistics);
    find("spark-box").hidden = spark === null;
    find("spark").textContent = number(Math.round(spark?.rate ?? 0));
    find("spark-text").textContent = spark?.text ?? "";
    if (log) {
      const ringEvents = mine?.ring.events ?? 0;
      // What has come is known at once, and statistics every second.
      const head = Math.max(log.head.version, Math.floor(this.#place ?? 0));
      find("ring").textContent = number(mine?.ring.acceptedEvents ?? 0);
      find("ring-most").textContent = `passed, ${number(ringEvents)} of ${number(log.ringEvents)} held`;
      find("watermark").textContent = number(head - 1);
      find("log-name").textContent = `of ${this.#log()}`;
      this.#drawing.show({
        oldest: log.oldest.version,
        head,
        ringStart: mine ? placeOf(mine.ring.start) : null,
        ringEvents,
        ringMost: log.ringEvents,
        passed: this.#passed.last(log.ringEvents - ringEvents - (changes?.buffered ?? 0)),
        cursor: this.#place === null ? null : Math.min(this.#place, head),
        state,
        here: changes?.buffered ?? 0,
        demand: changes?.demand ?? 0,
      });
    }
  }

  /** Tells those who listen to the page, once for each news. */
  #say(/** @type {string} */ news) {
    if (news === this.#said) return;
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

/** @param {boolean} connected @param {string | null} state @param {boolean} paused */
function stateInWords(connected, state, paused) {
  if (!connected) return "it will go on where it was";
  if (state === null) return "waiting for the server";
  if (paused) return state === "LIVE" ? "paused: the ring still covers this page" : "paused: the ring has moved on";
  return state === "LIVE" ? "served from memory" : "catching up from the log on disk";
}

const board = new Board();
Object.assign(globalThis, { board });
board.start();
