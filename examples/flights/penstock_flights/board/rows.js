// @ts-check
/** The rows of the board: flights that glide to their places, and a short list of those that landed. */

import { flapLine, turn } from "./flaps.js";
import { clockTime, delayOf, lateness, signed, statusOf } from "./flights.js";

/** @typedef {import("./flights.js").Flight} Flight */

const LEAVING_MS = 320;
const BLANKS = 14; // as many rows as the style ever shows

/** One flight on the board. */
class Row {
  /** @param {Flight} flight */
  constructor(flight) {
    this.element = document.createElement("div");
    this.element.className = "row";
    this.element.setAttribute("role", "row");
    this.time = new Cell(this.element, "time", 5);
    this.flight = new Cell(this.element, "flight", 6);
    this.city = new Cell(this.element, "city", 13, 3);
    this.origin = new Cell(this.element, "origin", 3);
    this.out = new Cell(this.element, "out", 5);
    this.status = new Cell(this.element, "status", 9);
    this.delay = document.createElement("span");
    this.delay.className = "cell delay";
    this.delay.setAttribute("role", "cell");
    this.element.append(this.delay);
    this.time.show(clockTime(flight.scheduled));
    this.flight.show(flight.name);
    this.city.show(flight.city, flight.dest);
    this.origin.show(flight.origin);
  }

  /**
   * @param {Flight} flight
   * @param {number} now
   * @param {number} place
   */
  update(flight, now, place) {
    const status = statusOf(flight, now);
    const delay = delayOf(flight, now);
    this.element.dataset.status = status;
    this.element.style.setProperty("--place", String(place));
    this.out.show(flight.departure === null ? "" : clockTime(flight.departure));
    this.status.show(status);
    const text = signed(delay);
    if (this.delay.textContent !== text) this.delay.textContent = text;
    this.delay.dataset.late = lateness(delay);
  }
}

/** A text twice: as flaps for the eye, as text for everybody else. */
class Cell {
  /**
   * @param {HTMLElement} row
   * @param {string} name
   * @param {number} length
   * @param {number} [short] Length of another text that takes its place where there is little room.
   */
  constructor(row, name, length, short) {
    this.element = document.createElement("span");
    this.element.className = `cell ${name}`;
    this.element.setAttribute("role", "cell");
    this.text = document.createElement("span");
    this.text.className = "aloud";
    this.long = flapLine(length, short ? "long" : "");
    this.short = short ? flapLine(short, "short") : null;
    this.element.append(this.text, this.long, ...(this.short ? [this.short] : []));
    row.append(this.element);
  }

  /** @param {string} text @param {string} [short] */
  show(text, short) {
    if (this.text.textContent === text) return;
    this.text.textContent = text;
    turn(this.long, text);
    if (this.short && short) turn(this.short, short);
  }
}

/** A row of which every flap is blank. */
function blank(/** @type {number} */ place) {
  const row = document.createElement("div");
  row.className = "row";
  row.style.setProperty("--place", String(place));
  for (const [name, length] of Object.entries({ time: 5, flight: 6, city: 13, origin: 3, out: 5, status: 9 })) {
    const cell = document.createElement("span");
    cell.className = `cell ${name}`;
    cell.append(flapLine(length, name === "city" ? "long" : ""));
    if (name === "city") cell.append(flapLine(3, "short"));
    row.append(cell);
  }
  return row;
}

/** The departures, a row each, moved about as they change; where there is none, the flaps are blank. */
export class Departures {
  /** @type {Map<string, Row>} */
  #rows = new Map();
  #element;

  /** @param {HTMLElement} element @param {HTMLElement} behind What is behind the rows. */
  constructor(element, behind) {
    this.#element = element;
    behind.append(...Array.from({ length: BLANKS }, (_, place) => blank(place)));
  }

  /**
   * @param {Flight[]} flights In their order.
   * @param {number} now
   * @param {boolean} gently Whether those who leave fade away.
   */
  show(flights, now, gently) {
    const shown = new Set(flights.map((flight) => flight.key));
    for (const [key, row] of this.#rows) {
      if (!shown.has(key)) this.#drop(key, row, gently);
    }
    let before = this.#first(null);
    for (const [place, flight] of flights.entries()) {
      let row = this.#rows.get(flight.key);
      if (row === undefined) {
        row = new Row(flight);
        this.#rows.set(flight.key, row);
      }
      row.update(flight, now, place);
      if (row.element === before) before = this.#first(before);
      else this.#element.insertBefore(row.element, before);
    }
  }

  /** The next row that stays, behind another one. */
  #first(/** @type {Element | null} */ behind) {
    let next = behind === null ? this.#element.firstElementChild : behind.nextElementSibling;
    while (next?.classList.contains("leaving")) next = next.nextElementSibling;
    return next;
  }

  /** @param {string} key @param {Row} row @param {boolean} gently */
  #drop(key, row, gently) {
    this.#rows.delete(key);
    if (!gently) {
      row.element.remove();
      return;
    }
    row.element.classList.add("leaving");
    row.element.setAttribute("aria-hidden", "true");
    setTimeout(() => row.element.remove(), LEAVING_MS);
  }
}

/** Those that landed last. */
export class Landed {
  #shown = "";
  #element;

  /** @param {HTMLElement} element */
  constructor(element) {
    this.#element = element;
  }

  /** @param {Flight[]} flights */
  show(flights) {
    const keys = flights.map((flight) => flight.key).join();
    if (keys === this.#shown) return;
    this.#shown = keys;
    this.#element.replaceChildren(...flights.map(landing));
  }
}

/** @param {Flight} flight */
function landing(flight) {
  const item = document.createElement("li");
  item.append(
    part("at", clockTime(flight.arrival ?? flight.time)),
    part("flight", flight.name),
    part("city", flight.city),
    part(lateness(flight.arrivalDelay), signed(flight.arrivalDelay)),
  );
  return item;
}

/** @param {string} name @param {string} text */
function part(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}
