// @ts-check
/** What a person may choose: whence, which flights, how fast. It is kept in the address of the page. */

import { AIRLINES } from "./names.js";

/** Minutes of the flights' time in a second, for each step of the slider; Infinity for all there is. */
export const PACES = [1, 2, 4, 10, 30, 120, 720, Infinity];

/**
 * @typedef {object} Choice
 * @property {"replay" | "live"} mode From the beginning of the log, or along with its end.
 * @property {string} airport Empty for all.
 * @property {string} airline Empty for all.
 * @property {number} pace A place in PACES.
 */

/**
 * Which changes a choice wants. Keys are carrier/number/date/origin, so a glob on the key is a filter.
 *
 * @param {Choice} choice
 */
export function criteriaOf({ airport, airline }) {
  const glob = airline && airport ? `${airline}/*/${airport}` : airline ? `${airline}/*` : airport ? `*/${airport}` : "";
  return [glob ? { entity_types: ["flight"], key_globs: [glob] } : { entity_types: ["flight"] }];
}

/**
 * Whether a choice wants a flight.
 *
 * @param {Pick<Choice, "airport" | "airline">} choice
 * @returns {(flight: {origin: string, carrier: string}) => boolean}
 */
export function wants({ airport, airline }) {
  return ({ origin, carrier }) => (!airport || origin === airport) && (!airline || carrier === airline);
}

/**
 * Whether everything that one choice wants is wanted by another one.
 *
 * @param {Choice} one
 * @param {Choice} other
 */
export function within(one, other) {
  return (!other.airport || one.airport === other.airport) && (!other.airline || one.airline === other.airline);
}

/**
 * Which flights a choice wants, in words, such as "of JetBlue from JFK"; empty for all.
 *
 * @param {Choice} choice
 */
export function filterInWords({ airport, airline }) {
  const name = /** @type {Record<string, string>} */ (AIRLINES)[airline];
  return [name && `of ${name}`, airport && `from ${airport}`].filter(Boolean).join(" ");
}

/** The form with the choices. */
export class Controls {
  #form;
  #changed;

  /**
   * @param {HTMLFormElement} form
   * @param {(choice: Choice, what: string) => void} changed Told the new choice, and the name of what was changed.
   */
  constructor(form, changed) {
    this.#form = form;
    this.#changed = changed;
    const airlines = /** @type {HTMLSelectElement} */ (form.elements.namedItem("airline"));
    const byName = Object.entries(AIRLINES).sort(([, one], [, other]) => one.localeCompare(other));
    airlines.append(...byName.map(([code, name]) => new Option(name, code)));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", (event) => {
      const { name } = /** @type {HTMLInputElement} */ (event.target);
      this.#keep();
      this.#changed(this.choice, name);
    });
  }

  /** @returns {Choice} */
  get choice() {
    const data = new FormData(this.#form);
    return {
      mode: data.get("mode") === "live" ? "live" : "replay",
      airport: String(data.get("airport") ?? ""),
      airline: String(data.get("airline") ?? ""),
      pace: Math.min(Math.max(0, Number(data.get("pace"))), PACES.length - 1),
    };
  }

  /**
   * Sets what the address of the page says; what is not in it, or makes no sense, stays as it is.
   *
   * @returns {boolean} Whether it says whence.
   */
  restore() {
    const wanted = new URLSearchParams(location.search);
    for (const [name, value] of wanted) this.set(name, value);
    return wanted.has("mode");
  }

  /** @param {string} name @param {string} value */
  set(name, value) {
    const field = this.#form.elements.namedItem(name);
    if (field instanceof RadioNodeList) {
      for (const radio of field) {
        if (radio instanceof HTMLInputElement && radio.value === value) radio.checked = true;
      }
    } else if (field instanceof HTMLSelectElement) {
      if ([...field.options].some((option) => option.value === value)) field.value = value;
    } else if (field instanceof HTMLInputElement && field.type === "range" && /^\d+$/.test(value)) {
      field.value = value;
    }
  }

  #keep() {
    const { mode, airport, airline, pace } = this.choice;
    const told = new URLSearchParams({ mode });
    if (airport) told.set("airport", airport);
    if (airline) told.set("airline", airline);
    if (mode === "replay") told.set("pace", String(pace));
    history.replaceState(null, "", `?${told}`);
  }
}

/**
 * A pace in words.
 *
 * @param {number} minutes
 */
export function paceInWords(minutes) {
  if (minutes === Infinity) return "all there is";
  if (minutes === 60) return "1 hour a second";
  if (minutes > 60) return `${minutes / 60} hours a second`;
  return minutes === 1 ? "1 minute a second" : `${minutes} minutes a second`;
}
