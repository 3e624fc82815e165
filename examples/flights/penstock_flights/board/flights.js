// @ts-check
/** The flights as far as they are known: each event is one flight's whole state at its moment. */

import { city } from "./names.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const FORGOTTEN_AFTER = 18 * HOUR; // some are diverted, and never arrive
const DUE = 4 * MINUTE; // behind its schedule before it counts as delayed
const DELAYED_MOST = 4;
const SETTLED_MOST = 512; // departures, cancellations, landings that are remembered

const NEW_YORK = new Intl.DateTimeFormat("en-US", {
  timeZone: "America/New_York",
  hourCycle: "h23",
  year: "numeric",
  month: "numeric",
  day: "numeric",
  hour: "numeric",
});
const DAY = new Intl.DateTimeFormat("en-GB", {
  timeZone: "UTC",
  weekday: "short",
  day: "numeric",
  month: "short",
  year: "numeric",
});
/** @type {Map<number, number>} */
const offsets = new Map();

/**
 * @typedef {"scheduled" | "departed" | "arrived" | "cancelled"} Status
 *
 * @typedef {object} Flight
 * @property {string} key
 * @property {string} name Such as UA1545.
 * @property {string} carrier
 * @property {string} origin
 * @property {string} dest
 * @property {string} city
 * @property {Status} status
 * @property {number} time Of this state, in milliseconds since 1970, as all times here.
 * @property {number} scheduled Departure.
 * @property {number | null} departure
 * @property {number | null} departureDelay Minutes.
 * @property {number | null} arrival
 * @property {number | null} arrivalDelay Minutes.
 * @property {boolean} synthetic Whether it was moved to another date.
 * @property {number} shownAt When the board learnt of this state, on the page's clock.
 *
 * @typedef {{origin: string, carrier: string, departed: number, arrived: number, cancelled: number}} Tally
 */

/**
 * Reads an event; null if it is none of a flight.
 *
 * @param {import("./penstock.js").ChangeEvent} event
 * @returns {Flight | null}
 */
export function readFlight({ key, body }) {
  if (key === undefined || body === null || typeof body !== "object") return null;
  const time = Date.parse(body.time);
  const scheduled = Date.parse(body.scheduled_departure);
  if (Number.isNaN(time) || Number.isNaN(scheduled)) return null;
  return {
    key,
    name: `${body.carrier}${body.number}`,
    carrier: body.carrier,
    origin: body.origin,
    dest: body.dest,
    city: city(body.dest),
    status: body.status,
    time,
    scheduled,
    departure: body.departure ? Date.parse(body.departure) : null,
    departureDelay: body.departure_delay ?? null,
    arrival: body.arrival ? Date.parse(body.arrival) : null,
    arrivalDelay: body.arrival_delay ?? null,
    synthetic: body.synthetic === true,
    shownAt: 0,
  };
}

/** Everything between being announced and being forgotten. */
export class Flights {
  /** @type {Map<string, Flight>} */
  #waiting = new Map(); // announced
  /** @type {Map<string, Flight>} */
  #flying = new Map();
  /** @type {Flight[]} */
  #left = []; // departed or cancelled, the newest last
  /** @type {Flight[]} */
  #landed = [];
  /** By airport and airline, so that a narrower filter knows its counts. @type {Map<string, Tally>} */
  #tallies = new Map();

  /** Whether nothing is known of any flight. */
  get empty() {
    return this.#tallies.size === 0;
  }

  /** How many are in the air, and how many have departed, landed and were cancelled. */
  get counts() {
    const counts = { flying: this.#flying.size, departed: 0, arrived: 0, cancelled: 0 };
    for (const { departed, arrived, cancelled } of this.#tallies.values()) {
      counts.departed += departed;
      counts.arrived += arrived;
      counts.cancelled += cancelled;
    }
    return counts;
  }

  /**
   * @param {Flight} flight
   * @param {number} shownAt
   */
  apply(flight, shownAt) {
    flight.shownAt = shownAt;
    this.#tally(flight);
    this.#waiting.delete(flight.key);
    this.#flying.delete(flight.key);
    if (flight.status === "scheduled") this.#waiting.set(flight.key, flight);
    if (flight.status === "departed") this.#flying.set(flight.key, flight);
    if (flight.status === "departed" || flight.status === "cancelled") remember(this.#left, flight);
    if (flight.status === "arrived") remember(this.#landed, flight);
  }

  /** @param {Flight} flight */
  #tally({ key, status, origin, carrier }) {
    const group = `${origin} ${carrier}`;
    const tally = this.#tallies.get(group) ?? { origin, carrier, departed: 0, arrived: 0, cancelled: 0 };
    this.#tallies.set(group, tally);
    if (status !== "scheduled") tally[status] += 1;
    // The departure of a flight that lands may lie before the first event.
    if (status === "arrived" && !this.#flying.has(key)) tally.departed += 1;
  }

  /** Leaves out what a new filter does not want, and what should have ended long ago. */
  keep(/** @type {(flight: {origin: string, carrier: string}) => boolean} */ wanted, /** @type {number} */ now) {
    for (const [group, tally] of this.#tallies) {
      if (!wanted(tally)) this.#tallies.delete(group);
    }
    for (const flights of [this.#waiting, this.#flying]) {
      for (const flight of flights.values()) {
        if (!wanted(flight) || now - flight.time > FORGOTTEN_AFTER) flights.delete(flight.key);
      }
    }
    this.#left = this.#left.filter(wanted);
    this.#landed = this.#landed.filter(wanted);
  }

  /**
   * What a board of `count` rows shows: who has just left, some who are late, and who leaves next, by schedule.
   *
   * @param {number} count
   * @param {{now: number, page: number, lingerMs: number}} at Both clocks, and how long one who has left is shown.
   */
  departures(count, { now, page, lingerMs }) {
    const left = this.#left.filter((flight) => page - flight.shownAt < lingerMs).slice(-Math.floor(count / 2));
    /** @type {Flight[]} */
    const late = [];
    /** @type {Flight[]} */
    const next = [];
    for (const flight of this.#waiting.values()) {
      (now - flight.scheduled > DUE ? late : next).push(flight);
    }
    late.sort(bySchedule);
    next.sort(bySchedule);
    const delayed = late.slice(-DELAYED_MOST);
    return [...left, ...delayed, ...next].slice(0, Math.max(count, left.length)).sort(bySchedule).slice(0, count);
  }

  /**
   * The last that landed, the newest first.
   *
   * @param {number} count
   */
  landed(count) {
    return this.#landed.slice(-count).reverse();
  }
}

/**
 * What the board says about a flight; a flight that is overdue is called delayed, which no event says.
 *
 * @param {Flight} flight
 * @param {number} now
 */
export function statusOf(flight, now) {
  return flight.status === "scheduled" && now - flight.scheduled > DUE ? "delayed" : flight.status;
}

/**
 * How many minutes late it left, or is by now; null while that is not known.
 *
 * @param {Flight} flight
 * @param {number} now
 */
export function delayOf(flight, now) {
  if (statusOf(flight, now) === "delayed") return Math.floor((now - flight.scheduled) / MINUTE);
  return flight.status === "departed" ? flight.departureDelay : null;
}

/**
 * How minutes of delay are coloured.
 *
 * @param {number | null} minutes
 */
export function lateness(minutes) {
  return minutes === null ? "" : minutes > 15 ? "late" : minutes < 0 ? "early" : "even";
}

/**
 * The time of day in New York, such as 07:45.
 *
 * @param {number} time
 */
export function clockTime(time) {
  const minutes = Math.floor((time + offset(time)) / MINUTE) % 1440;
  return `${String(Math.floor(minutes / 60)).padStart(2, "0")}:${String(minutes % 60).padStart(2, "0")}`;
}

/**
 * The date in New York.
 *
 * @param {number} time
 */
export function day(time) {
  return DAY.format(time + offset(time));
}

/**
 * Minutes as people say them: +12, −3.
 *
 * @param {number | null} minutes
 */
export function signed(minutes) {
  if (minutes === null) return "";
  return minutes > 0 ? `+${minutes}` : minutes < 0 ? `\u2212${-minutes}` : "on time";
}

/** New York's distance from UTC; asked once an hour, since the formatter is slow. */
function offset(/** @type {number} */ time) {
  const hour = Math.floor(time / HOUR);
  let found = offsets.get(hour);
  if (found === undefined) {
    /** @type {Record<string, number>} */
    const part = {};
    for (const { type, value } of NEW_YORK.formatToParts(hour * HOUR)) part[type] = Number(value);
    found = Date.UTC(part.year, part.month - 1, part.day, part.hour) - hour * HOUR;
    if (offsets.size > 10_000) offsets.clear();
    offsets.set(hour, found);
  }
  return found;
}

/** @param {Flight} one @param {Flight} other */
function bySchedule(one, other) {
  return one.scheduled - other.scheduled || (one.key < other.key ? -1 : 1);
}

/** @param {Flight[]} list @param {Flight} flight */
function remember(list, flight) {
  list.push(flight);
  if (list.length > 2 * SETTLED_MOST) list.splice(0, list.length - SETTLED_MOST);
}
