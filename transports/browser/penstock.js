// @ts-check
/**
 * A client for change logs that are served over `penstock.v1+json`, in browsers and wherever else there is a WebSocket.
 *
 *     import { connect } from "./penstock.js";
 *
 *     const client = connect("wss://example.org/ws");
 *     const orders = client.changes({ criteria: [{ entity_types: ["order"] }], content: "BODY", start: "earliest" });
 *     for await (const event of orders) {
 *       console.log(event.key, event.body);
 *     }
 *
 * The reader sets the pace. A subscription requests as many events as fit into its window, and more only when half of
 * them are handled. A reader that stops reading stops requesting, and the server keeps the cursor of the subscription,
 * not the events. A lost connection is re-established, and every subscription resumes behind the last event that
 * arrived: no event is lost or delivered twice.
 *
 * `const orders = client.liveMap("order")` is a map of the current entities, kept up to date; the server has to keep the
 * state of the log. Use `await orders.ready`, then `orders.get("42")`, and the event `change` for each message.
 *
 * `await client.commit([{ entity_type: "order", key: "42", body: { total: 12 } }])` appends a transaction exactly once,
 * whatever happens to the connection, if the server grants writes to the client.
 *
 * `const stock = client.slot("stock")` opens a slot, whose position the server keeps: read its changes like any other, and
 * call `stock.ack(event)` once they are handled. `await client.slots("info", { name: "stock" })` returns its progress.
 *
 * `for await (const delivery of client.group("pickers", "tab 1"))` joins a group, whose consumers share its changes: call
 * `await worker.ack(delivery)`, or `nack`, `inProgress`, `term`. `await client.groups("create", { name: "pickers" })` creates one.
 *
 * Bodies are parsed with JSON.parse: integers beyond 2^53 lose their last digits, unless a subscription requests them as
 * text with `integers: "TEXT"`. The entry version of a change without `entry_version` is its `version`.
 *
 * @module
 */

/** The sub-protocol of this client. */
export const SUBPROTOCOL = "penstock.v1+json";

const WINDOW = 256;
const REQUEST_EVERY_MS = 4; // a small window must not become a flood of requests
const ACK_EVERY_MS = 200; // a server stores acknowledgements no more often
const COMPACT_AT = 1024;
const AGAIN_MS = 500; // until a live map whose subscription ended starts over
/** Errors after which a live map starts over, because a new subscription may show the current state. */
const BEGUN_AGAIN = new Set(["SNAPSHOT_GONE", "HISTORY_PRUNED", "CURSOR_FORKED", "CURSOR_FOREIGN", "LOG_REPLACED"]);
/** Close codes after which connecting again cannot help. */
const FATAL_CLOSES = new Set([1002, 1007, 1009, 4400, 4401, 4403, 4409, 4429, 4490, 4500]);
const FORBIDDEN = "4403";
/** Messages after which a subscription is no longer one that is refused again and again. */
const PROGRESS = new Set(["next", "deliveries", "snapshot_begin", "chunk_end", "snapshot_end", "checkpoint"]);
const LOST = "1006"; // the code of a connection that ended without a close frame
// The schedule: docs/protocol.md has it as a table, and Python's client keeps it too.
const FIRST_MS = 250;
const LIMIT_MS = 3_000;
const OPEN_MS = 6_000;
const QUIET_PARTS = 3; // a third of the keep-alive time without a message, another without an answer
const ANSWER_LIMIT_MS = 60_000;

/**
 * @typedef {object} ChangeEvent One change, or the TRANSACTION event at the head of a version.
 * @property {string} cursor The cursor behind it: pass it as `since` to resume there.
 * @property {number} version Version of the transaction.
 * @property {number} index Place in the transaction; 0 is the leading TRANSACTION event.
 * @property {number} count Changes of the whole transaction, the TRANSACTION event included.
 * @property {string} timestamp When the transaction was committed.
 * @property {string} area What part of the system it concerns.
 * @property {string} operation What happened.
 * @property {string} [entity_type] Kind of the entity.
 * @property {string} [key] Key of the entity.
 * @property {any} [body] The entity after the change. Only with content BODY.
 * @property {any} [before] The entity before the change. Only with content BODY.
 * @property {string[]} [changed] Names of the fields that changed.
 * @property {number | string} [schema_version] Version of the schema in force.
 * @property {number | string} [entry_version] Version of the entity, for conflict resolution.
 * @property {string} [origin] Where the change was first made.
 * @property {any} [meta] The `meta` of the transaction (index 0) or of the change.
 * @property {string} [expires_at] When the entity expires, or expired.
 * @property {string} [linked] Of the two halves of a key change, the key of the other.
 * @property {string} [field] Path of the one field that a field-level change concerns; none for the entity as a whole.
 * @property {string} [action] The action of a field-level change on the field.
 * @property {string} [error] What of this change cannot be rendered, and why; the other fields lack it.
 * @property {string[]} [lacking] The parts that the requested images need and the log lacks. Only with content BODY.
 *
 * @typedef {object} Criterion All given conditions must hold.
 * @property {string[]} [areas]
 * @property {string[]} [entity_types]
 * @property {string[]} [keys]
 * @property {string[]} [key_globs]
 * @property {string[]} [key_patterns] Regular expressions that must match the whole key.
 * @property {string[]} [operations]
 * @property {string[]} [changed] The names of fields.
 * @property {{path: string, compare: string, value?: any, image?: "AFTER" | "BEFORE"}[]} [where] Conditions, all of which must hold.
 * @property {("ENTERED" | "LEFT" | "STAYED" | "MAYBE_LEFT")[]} [transitions]
 * @property {{path: string, compare: string, value?: any}[]} [annotations] Conditions on the transaction, all of which must hold.
 *
 * @typedef {"latest" | "earliest" | "state" | {version: number, index?: number} | {time: string | Date} | {transaction: string}} Start
 *   The next version; the oldest kept version; the current entities as events of operation READ, then the next version; the
 *   given version; the first version committed at or after a time; or the transaction of an id.
 *
 * @typedef {{begin: string, end: string}} Gap Missing history, from one cursor to another.
 *
 * @typedef {object} Wish
 * @property {Criterion[]} [criteria] One of them must hold; everything by default.
 * @property {string} [log] Required if the server has several logs.
 * @property {string} [since] A cursor to start at; replaces `start`.
 * @property {Start} [start]
 * @property {number} [until] The last version.
 * @property {"HEADER" | "BODY"} [content]
 * @property {string} [images]
 * @property {"NUMBER" | "TEXT"} [integers] How integers beyond 2^53 are encoded.
 * @property {number} [window] Most events requested and not handled yet; 256 by default.
 * @property {number} [maxEvents] Most events in one message.
 * @property {number} [heartbeatMs] The longest silence until the server sends the cursor.
 * @property {"resync" | "fail"} [onLag]
 * @property {"fail" | ((gap: Gap) => any)} [onGap] Where history is no longer kept: end with HISTORY_PRUNED, or resume
 *   at the oldest position and call this function before the reader gets the first event behind the gap.
 * @property {"never" | "initial" | "initial_only" | "on_gap"} [snapshot] When rows are delivered. With start "state" they come
 *   first, followed by every change ("initial") or by the end ("initial_only"); with "on_gap" they replace history that is no
 *   longer kept; with "initial" and "on_gap" they also come whenever `refresh` requests them. By default "initial" with start
 *   "state", and "never" otherwise.
 * @property {boolean} [whole] Whether a start inside a transaction sends it from its beginning.
 *
 * @typedef {object} SlotWish Options for opening a slot, which has its own criteria and position.
 * @property {boolean} [takeOver] Whether to take the slot over from its current consumer, whose reading ends with FENCED.
 * @property {string} [owner] The owner that other consumers see.
 * @property {string} [log] Required if the server has several logs.
 * @property {"HEADER" | "BODY"} [content]
 * @property {string} [images]
 * @property {"NUMBER" | "TEXT"} [integers] How integers beyond 2^53 are encoded.
 * @property {number} [window] Most events requested and not handled yet; 256 by default.
 * @property {number} [maxEvents] Most events in one message.
 * @property {number} [heartbeatMs] The longest silence until the server sends the cursor.
 *
 * @typedef {object} SlotOrder The arguments of an order on a slot other than opening it.
 * @property {string} [name] The name of the slot; omitted for "list".
 * @property {string} [log] Required if the server has several logs.
 * @property {Criterion[]} [criteria] For "create".
 * @property {string} [since] For "create" and "seek": a cursor.
 * @property {string | object} [start] Likewise: a start position other than a cursor.
 * @property {"transaction" | "change"} [granularity] For "create".
 * @property {boolean} [paused] For "create": whether the slot delivers nothing until it is resumed.
 * @property {string} [copyFrom] For "create": the slot whose position is copied.
 *
 * @typedef {object} SlotTold
 * @property {string} log
 * @property {string} name
 * @property {"free" | "served" | "lost" | "forked" | "good"} state "good" instead of the first two if it is stored.
 * @property {string} cursor The next change that its consumer has not acknowledged.
 * @property {number} version The version of that change.
 * @property {number} generation The generation of the last opening.
 * @property {string | null} owner The owner of the current opening.
 * @property {boolean} paused
 * @property {{versions: number | null, changes: number | null, bytes: number | null, seconds: number | null}} lag
 * @property {string | null} history The state of the history that is held for it.
 * @property {number | null} heldBytes
 * @property {number | null} bytesLeft The bytes until it exceeds its cap.
 * @property {number | null} secondsLeft
 * @property {boolean} stored Whether the server follows the log: the slot as its owner has stored it; what only the owner knows is null.
 *
 * @typedef {object} GroupOrder The arguments of an order on a group.
 * @property {string} name The name of the group.
 * @property {string} [log] Required if the server has several logs.
 * @property {Criterion[]} [criteria] For "create".
 * @property {string} [since] For "create" and "reset": a cursor.
 * @property {string | object} [start] Likewise: a start position other than a cursor.
 * @property {Record<string, any>} [options] For "create": the options of a group by name, such as `max_deliver`.
 * @property {number} [limit] For "pending" and "dead": most rows, 100 by default, at most 1,000.
 * @property {string} [after] For "dead": only letters behind this position.
 * @property {number} [minIdleMs] For "release": only deliveries made at least so long ago.
 * @property {string[]} [positions] For "discard": the positions of the letters, at most 1,000; omitted for all letters.
 *
 * @typedef {object} GroupTold
 * @property {string} log
 * @property {string} name
 * @property {"serving" | "paused" | "tripped" | "lost" | "forked"} state
 * @property {string} cursor The first change that is not done.
 * @property {number} version The version of that change.
 * @property {number} generation The last generation of a consumer.
 * @property {boolean} changed Whether the order has changed anything.
 *
 * @typedef {object} DeadLetter A delivery that failed too often, or that a consumer gave up.
 * @property {string} position The position, for "discard".
 * @property {string} cursor The cursor of the position.
 * @property {string | null} consumer The consumer of the last delivery.
 * @property {number} count The number of deliveries.
 * @property {string} first_error
 * @property {string} last_error
 * @property {string} died_at
 * @property {Record<string, any>[]} changes
 *
 * @typedef {object} Schema
 * @property {string} log
 * @property {string} entity_type
 * @property {number} version
 * @property {string} told The cursor from which a subscription begins with the change that recorded the schema.
 * @property {Record<string, any>} parts The parts by name; `entity` describes the entity itself.
 *
 * @typedef {object} NewChange A change to commit, in the format of `penstock tail`.
 * @property {string} entity_type
 * @property {string} [key]
 * @property {"UPSERT" | "REMOVE" | "TRUNCATE" | "EXPIRE" | "REKEY"} [operation] UPSERT by default.
 * @property {any} [body]
 * @property {any} [before]
 * @property {string[] | "auto"} [changed]
 * @property {Record<string, any>} [meta]
 * @property {string} [new_key] For REKEY.
 * @property {string} [expires_at]
 *
 * @typedef {object} CommitOptions
 * @property {string} [log] Required if the server has several logs.
 * @property {string} [producer] For a program that itself repeats unanswered transactions, also after a restart.
 * @property {number} [sequence] Increases with each transaction of the producer.
 * @property {string | {cursor: string, keys: {entity_type: string, key: string}[]}} [expect] A cursor behind which no commit
 *   may exist; with keys, no commit of these keys.
 * @property {Record<string, any>} [meta] The annotations of the transaction.
 * @property {"accepted" | "durable" | "visible"} [wait] How far the transaction must have progressed; durable by default.
 *
 * @typedef {object} Commit
 * @property {number} version The version; 0 for a duplicate whose version is no longer known.
 * @property {string | null} cursor The cursor behind it; null if the version is not known.
 * @property {boolean} duplicate Whether it had been committed before.
 * @property {number} changes The number of changes, including the TRANSACTION event.
 * @property {string | null} timestamp The time of the commit; null for a duplicate.
 *
 * @typedef {object} Options
 * @property {string | (() => string | null | undefined | Promise<string | null | undefined>)} [token] For servers that require one. A
 *   function is called before each connection; a connection whose token has expired is renewed with its next one.
 * @property {{first?: number, limit?: number}} [backoff] The bounds of the first delay and of any delay, in milliseconds; 250 and 3,000 by default.
 * @property {number} [openTimeout] The milliseconds that a function has for a token, and then a server to acknowledge the connection; 6,000 by default.
 * @property {new (url: string, protocol: string) => any} [WebSocket] For environments without a global one, such as that of npm `ws`.
 */

/** The error that ended a subscription or a connection for good. */
export class PenstockError extends Error {
  /**
   * @param {string} code A code from docs/protocol.md, or the close code of a connection.
   * @param {string} message
   * @param {Record<string, any>} [data] The data of the error.
   * @param {unknown} [cause] The error behind it.
   */
  constructor(code, message, data = {}, cause) {
    super(`${code}: ${message}`, cause === undefined ? undefined : { cause });
    this.name = "PenstockError";
    this.code = code;
    this.data = data;
  }
}

/**
 * Connects to a server.
 *
 * @param {string | URL} url The URL of the endpoint; `http:` and `https:` mean `ws:` and `wss:`.
 * @param {Options} [options]
 */
export function connect(url, options = {}) {
  return new Client(url, options);
}

/** A connection that is re-established whenever it is lost. Fires `status` when its status changes. */
export class Client extends EventTarget {
  #url;
  #options;
  /** @type {WebSocket | null} */
  #socket = null;
  #dials = 0; // rises with each attempt to connect, and when that attempt or its connection is over
  #accepted = false; // whether the server has acknowledged this connection
  /** @type {PenstockError | null} */
  #error = null;
  /** @type {Set<Changes | Deliveries>} */
  #open = new Set();
  /** @type {Map<string, Changes | Deliveries>} */
  #byId = new Map();
  /** @type {Map<string, {message: object, resolve: (answer: any) => void, reject: (error: Error) => void}>} */
  #asked = new Map();
  #appends = new Appends({ send: (text) => this.#write(text), delay: (attempt) => this.#delay(attempt) });
  // The server tells by its form that the name is drawn for this connection and never used again.
  #producer = `connection-${Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  #sequence = 0;
  /** @type {"connecting" | "open" | "waiting" | "closed"} */
  #status = "connecting";
  #attempts = 0; // in a row, without an acknowledgement
  /** @type {WeakMap<Changes | Deliveries, number>} */
  #refused = new WeakMap(); // how often in a row
  #serial = 0;
  #calls = 1; // calls of a group consumer that the server accepts before it has answered them
  #heard = 0; // when, by a clock that nobody sets
  #probing = false; // whether it was asked whether it is there, and nothing was heard since
  #probedAt = 0; // when it was asked last
  #wait = 0; // the milliseconds that it has for an answer
  #took = 0; // the milliseconds until the last such question was answered
  #patience = 0; // the milliseconds for an answer since a connection was given up, until one lasts for a while
  #ackedAt = 0;
  #keepAlive = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #watch;
  #waking = new AbortController();

  /**
   * @param {string | URL} url
   * @param {Options} options
   */
  constructor(url, options) {
    super();
    const place = new URL(url, globalThis.location?.href);
    place.protocol = place.protocol.replace(/^http/, "ws");
    if (!/^wss?:$/.test(place.protocol)) throw new TypeError(`url is ${place}, but must begin with ws:, wss:, http: or https:`);
    this.#url = place.href;
    if ((options.WebSocket ?? globalThis.WebSocket) === undefined) {
      throw new TypeError("there is no WebSocket here; pass one, such as that of npm ws: connect(url, { WebSocket })");
    }
    this.#options = options;
    // The machine may have slept, and a hidden page runs its timers once a minute.
    const { signal } = this.#waking;
    for (const name of ["online", "pageshow"]) globalThis.addEventListener?.(name, () => this.#wake(), { signal });
    const shown = () => document.visibilityState === "hidden" || this.#wake();
    globalThis.document?.addEventListener("visibilitychange", shown, { signal });
    this.#dial();
  }

  /** Why there is no connection: the reason of the last loss, or of the end; null while there is one, before, and after `close`. */
  get error() {
    return this.#error;
  }

  /** `connecting`, `open`, `waiting` for the next attempt, or `closed`. */
  get status() {
    return this.#status;
  }

  /**
   * Subscribes. Read the result with `for await`, with a single reader; leaving the loop ends the subscription.
   *
   * @param {Wish} [wish]
   * @returns {Changes}
   */
  changes(wish = {}) {
    return this.#opened(new Changes(wish, this.#link()));
  }

  /**
   * Opens a slot for its one consumer, which reads it like any other subscription, and acknowledges. Leaving the loop releases
   * the slot. A lost connection does not: reading resumes behind the last event that arrived, unless another consumer has
   * opened the slot meanwhile.
   *
   * @param {string} name
   * @param {SlotWish} [wish]
   * @returns {SlotChanges}
   */
  slot(name, { takeOver, owner, ...wish } = {}) {
    return this.#opened(
      new SlotChanges(wish, this.#link(), new SlotPlace({ name, takeOver, owner }, (message) => this.#send(message))),
    );
  }

  /**
   * Joins a group as one of its consumers, which share its changes: read the deliveries with `for await`, with a single reader,
   * and acknowledge, refuse or give up each. Leaving the loop leaves the group. A lost connection does not, if the client
   * reconnects within the grace time of the server: it keeps its deliveries, and those in flight are sent again.
   *
   * @param {string} name
   * @param {string} consumer The name of the consumer; another consumer that joins under this name replaces it.
   * @param {{log?: string, window?: number, history?: boolean, integers?: "NUMBER" | "TEXT"}} [wish]
   * @returns {Deliveries}
   */
  group(name, consumer, { window, ...wish } = {}) {
    const link = { ...this.#link(), calls: () => this.#calls };
    return this.#opened(new Deliveries({ ...wish, group: name, consumer }, link, window));
  }

  #link() {
    if (this.#status === "closed") throw new PenstockError("CLOSED", "the client was closed");
    return {
      send: (/** @type {object} */ message) => this.#send(message),
      again: (/** @type {Changes | Deliveries} */ one) => this.#again(one),
      leave: (/** @type {Changes | Deliveries} */ one, /** @type {string | null} */ id) => {
        this.#open.delete(one);
        if (id !== null) this.#byId.delete(id);
      },
    };
  }

  /**
   * @template {Changes | Deliveries} T
   * @param {T} changes
   * @returns {T}
   */
  #opened(changes) {
    this.#open.add(changes);
    if (this.#status === "open") this.#subscribe(changes);
    return changes;
  }

  /**
   * Returns a map of the current entities of a type, kept up to date; the server has to keep the state of the log.
   *
   * @param {string} entityType
   * @param {LiveWish} [wish] Selects entities.
   * @returns {LiveMap}
   */
  liveMap(entityType, wish = {}) {
    const { keys, key_globs, key_patterns, ...rest } = wish;
    const some = { areas: ["DATA"], entity_types: [entityType], keys, key_globs, key_patterns };
    const all = { areas: ["DATA"], entity_types: [entityType], operations: ["TRUNCATE"] };
    const criteria = keys ?? key_globs ?? key_patterns ? [some, all] : [some];
    return new LiveMap(() => this.changes({ ...rest, criteria, content: "BODY", start: "state" }));
  }

  /**
   * Returns a schema by its version, or the newest; null if there is none. Every `schema_version` that an event names is
   * found, even if the change that recorded the schema is no longer kept, and a version never changes.
   *
   * @param {string} entityType
   * @param {{version?: number, log?: string}} [which]
   * @returns {Promise<Schema | null>}
   */
  schema(entityType, { version, log } = {}) {
    return this.#ask("schema", { entity_type: entityType, version, log });
  }

  /**
   * Executes an order on slots other than opening one, and returns the slots afterwards. An order that is unanswered when the
   * connection is lost is repeated on the next one.
   *
   * @param {"list" | "info" | "create" | "seek" | "pause" | "resume" | "drop"} what
   * @param {SlotOrder} [order]
   * @returns {Promise<SlotTold[]>}
   */
  slots(what, order = {}) {
    return this.#ask("slot", { ...order, do: what });
  }

  /**
   * Executes an order on a group; no joining is needed. An order that is unanswered when the connection is lost is repeated on
   * the next one: a second "create" or "drop" may then find what the first one did.
   *
   * "info" returns the statistics of the group, as `/statistics` has them. "create", "reset", "pause" and "resume" return the group
   * (`GroupTold`), "drop" its log and name, "pending" `total` and
   * `rows` of the unacknowledged deliveries, "dead" `letters` and `next`, which is `after` for the next page or null, and
   * "discard" the `count` of letters that it removed. "release" takes pending deliveries back from their consumers, so that they are due
   * at once, and returns the `count`.
   *
   * @param {"info" | "create" | "reset" | "pause" | "resume" | "drop" | "pending" | "dead" | "discard" | "release"} what
   * @param {GroupOrder} order
   * @returns {Promise<any>}
   */
  groups(what, order) {
    return this.#ask("groups", { ...order, do: what });
  }

  /**
   * Iterates over the dead letters of a group, in the order of their positions, a page at a time. To replay them, handle each
   * letter, and then discard it with `groups("discard", { name, positions: [letter.position] })`.
   *
   * @param {string} name
   * @param {{log?: string, limit?: number}} [which]
   * @returns {AsyncGenerator<DeadLetter, void>}
   */
  async *deadLetters(name, which = {}) {
    for (let after = null; ; ) {
      const { letters, next } = await this.groups("dead", { ...which, name, after });
      yield* letters;
      if ((after = next) === null) return;
    }
  }

  /**
   * @param {string} type
   * @param {object} payload
   * @returns {Promise<any>}
   */
  #ask(type, payload) {
    if (this.#status === "closed") return Promise.reject(new PenstockError("CLOSED", "the client was closed"));
    const id = `s${(this.#serial += 1)}`;
    const message = { type, id, payload };
    return new Promise((resolve, reject) => {
      this.#asked.set(id, { message, resolve, reject });
      if (this.#status === "open") this.#send(message);
    });
  }

  /**
   * Commits changes as one transaction. Transactions are written in the order of the calls, and many may be in flight. Those
   * that are unanswered when the connection is lost are sent again on the next one, and written once.
   *
   * The promise is rejected with a `PenstockError` if the server refuses the transaction, or the client is closed;
   * `data.outcome` is then `"refused"`, or `"unknown"` if the transaction may have been written all the same.
   *
   * @param {NewChange[]} changes
   * @param {CommitOptions} [options]
   * @returns {Promise<Commit>}
   */
  commit(changes, { log, producer, sequence, expect, meta, wait } = {}) {
    if (this.#status === "closed") {
      return Promise.reject(new PenstockError("CLOSED", "the client was closed", { outcome: "refused" }));
    }
    if ((producer === undefined) !== (sequence === undefined)) {
      return Promise.reject(new TypeError("producer and sequence are given together, or neither"));
    }
    const named =
      producer === undefined
        ? { producer: this.#producer, sequence: (this.#sequence += 1) }
        : { producer, sequence };
    const id = `a${(this.#serial += 1)}`;
    return this.#appends.add(id, { log, changes, ...named, expect, meta, wait });
  }

  /** Ends every subscription and the connection, for good. */
  close() {
    if (this.#status !== "closed") this.#end(null);
  }

  #dial() {
    clearTimeout(this.#retry);
    const dial = (this.#dials += 1);
    const lost = (/** @type {string} */ code, /** @type {string} */ reason, /** @type {unknown} */ cause = undefined) => {
      const why = reason || (this.#accepted ? "the connection was lost" : "the server could not be reached, or refused the connection");
      if (dial === this.#dials) this.#lost(new PenstockError(code, why, {}, cause));
    };
    this.#accepted = false;
    const { openTimeout = OPEN_MS } = this.#options;
    const wait = (/** @type {string} */ code, /** @type {string} */ whose) => {
      clearTimeout(this.#watch);
      this.#watch = setTimeout(() => lost(code, `${whose} did not answer within ${openTimeout} ms`), openTimeout);
    };
    wait("TOKEN_FAILED", "the function for the token");
    this.#token().then(
      (token) => {
        if (dial !== this.#dials) return;
        wait(LOST, "the server");
        this.#connect(token, lost);
      },
      (error) => lost("TOKEN_FAILED", `there is no token: ${error?.message ?? error}`, error),
    );
    this.#turn("connecting");
  }

  async #token() {
    const { token } = this.#options;
    const found = (typeof token === "function" ? await token() : token) ?? undefined;
    if (found !== undefined && typeof found !== "string") throw new TypeError(`token is ${typeof found}, but must be text`);
    return found;
  }

  /**
   * @param {string | undefined} token
   * @param {(code: string, reason: string) => void} lost
   */
  #connect(token, lost) {
    const Socket = this.#options.WebSocket ?? WebSocket;
    /** @type {WebSocket} */
    let socket;
    try {
      socket = new Socket(this.#url, SUBPROTOCOL);
    } catch (error) {
      this.#end(new PenstockError("CONNECTION_REFUSED", /** @type {Error} */ (error).message, {}, error)); // as ws: is in a page of https:
      return;
    }
    this.#socket = socket;
    let why = "";
    socket.onopen = () => this.#write(JSON.stringify({ type: "connection_init", payload: { token } }), socket);
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#receive(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => lost(String(code), reason || why);
    // Where a refused connection tells by `close` too, its code is told in the same turn.
    socket.onerror = (event) => {
      why = /** @type {any} */ (event).message ?? "";
      setTimeout(() => lost(LOST, why), 0);
    };
  }

  /** Something has happened after which a connection may be dead, or possible again. */
  #wake() {
    if (this.#status === "waiting") this.#dial();
    else if (this.#status === "open") this.#probe();
  }

  /** @param {string} status */
  #turn(status) {
    if (status === this.#status) return;
    this.#status = /** @type {any} */ (status);
    this.dispatchEvent(new Event("status"));
  }

  /** @param {object} message */
  #send(message) {
    this.#write(JSON.stringify(message));
  }

  #write(/** @type {string} */ text, socket = this.#socket) {
    if (socket?.readyState === 1) socket.send(text); // open; otherwise it is lost, like everything in flight
  }

  /** @param {any} message */
  #receive(message) {
    this.#heard = performance.now();
    if (this.#probing) this.#guard();
    if (this.#accepted && this.#heard - this.#ackedAt > this.#keepAlive / QUIET_PARTS / 2) this.#patience = 0;
    switch (message.type) {
      case "connection_ack":
        this.#attempts = 0;
        this.#accepted = true;
        this.#ackedAt = this.#heard;
        this.#error = null;
        this.#keepAlive = message.payload?.keepAliveMs ?? 12_000;
        this.#guard();
        this.#calls = message.payload?.limits?.groupCalls ?? 1;
        this.#turn("open");
        for (const changes of this.#open) this.#subscribe(changes);
        for (const { message } of this.#asked.values()) this.#send(message);
        this.#appends.begin(message.payload?.limits ?? {});
        break;
      case "appended":
        this.#appends.answered(message);
        break;
      case "checkpoint":
        for (const item of message.items) this.#tell({ ...item, type: "checkpoint" });
        break;
      case "ping":
        this.#send({ type: "pong", payload: message.payload });
        break;
      case "subscribed":
      case "acked":
      case "joined":
      case "deliveries":
      case "group":
      case "gap":
      case "next":
      case "snapshot_begin":
      case "chunk_end":
      case "snapshot_end":
        this.#tell(message);
        break;
      case "groups":
      case "schema":
      case "slot":
        this.#asked.get(message.id)?.resolve(message.payload);
        this.#asked.delete(message.id);
        break;
      case "error":
      case "complete": {
        if (this.#appends.refused(message)) break;
        const asked = this.#asked.get(message.id);
        if (asked !== undefined) {
          if (message.payload.code === "GOING_AWAY") break; // the next connection repeats the question
          this.#asked.delete(message.id);
          asked.reject(failure(message.payload));
          break;
        }
        const changes = this.#byId.get(message.id);
        this.#byId.delete(message.id);
        changes?.tell(message.type, message);
        break;
      }
      case "pong":
        // One that took longer than it was given came while the machine slept.
        if (message.payload?.at === this.#probedAt && this.#heard - this.#probedAt <= this.#wait) this.#took = this.#heard - this.#probedAt;
        break;
      default: // goaway, after which the server closes with 1012
    }
  }

  /** @param {any} message */
  #tell(message) {
    const changes = this.#byId.get(message.id);
    if (changes === undefined) return;
    if (PROGRESS.has(message.type)) this.#refused.delete(changes);
    changes.tell(message.type, message);
  }

  /** @param {Changes | Deliveries} changes */
  #subscribe(changes) {
    const id = `c${(this.#serial += 1)}`;
    this.#byId.set(id, changes);
    changes.tell("open", id);
  }

  /** @param {Changes | Deliveries} changes */
  #again(changes) {
    const refused = this.#refused.get(changes) ?? 0;
    this.#refused.set(changes, refused + 1);
    setTimeout(() => {
      // If the connection was lost meanwhile, the next one renews every subscription.
      if (this.#status === "open" && this.#open.has(changes) && !changes.subscribed) this.#subscribe(changes);
    }, this.#delay(refused));
  }

  /** JavaScript cannot see the pings of a WebSocket, so the client pings a silent connection itself. */
  #guard() {
    clearTimeout(this.#watch);
    this.#probing = false;
    const left = this.#heard + this.#keepAlive / QUIET_PARTS - performance.now();
    if (left <= 0) this.#probe();
    else this.#watch = setTimeout(() => this.#guard(), left);
  }

  /**
   * Asks the server whether it is there, and gives the connection up without an answer. A large message on a slow line looks like
   * silence until all of it has arrived. So after a connection that was given up the time for an answer is twice as long, until one is
   * heard of for a while: that one is not stuck where its predecessor was. And it is twice that of an answer that did take longer.
   */
  #probe(again = false) {
    if (this.#probing && !again) return;
    clearTimeout(this.#watch);
    this.#probing = true;
    const asked = (this.#probedAt = performance.now());
    const least = this.#keepAlive / QUIET_PARTS;
    const slow = this.#took > least ? Math.min(2 * this.#took, ANSWER_LIMIT_MS) : 0;
    const wait = (this.#wait = Math.max(least, slow, this.#patience));
    this.#send({ type: "ping", payload: { at: asked } });
    this.#watch = setTimeout(() => {
      if (!again && performance.now() - asked > 2 * wait) {
        this.#probe(true); // the machine slept, or the page is hidden: an answer may have come that is not read yet
        return;
      }
      this.#patience = Math.min(2 * wait, ANSWER_LIMIT_MS);
      this.#lost(new PenstockError(LOST, "nothing was heard of the server"));
    }, wait);
  }

  /** @param {PenstockError} error */
  #lost(error) {
    const renewable = error.code === FORBIDDEN && this.#accepted && typeof this.#options.token === "function";
    if (FATAL_CLOSES.has(Number(error.code)) && !renewable) {
      this.#end(error);
      return;
    }
    this.#leave();
    this.#error = error;
    this.#appends.lost();
    for (const changes of this.#open) changes.tell("lost", null);
    if (this.#status === "closed") return; // by a listener
    this.#retry = setTimeout(() => this.#dial(), this.#delay(this.#attempts));
    this.#attempts += 1;
    this.#turn("waiting");
  }

  /** The attempt to connect, or its connection, is over. */
  #leave() {
    clearTimeout(this.#watch);
    this.#probing = false;
    this.#dials += 1;
    this.#byId.clear();
    const socket = this.#socket;
    this.#socket = null;
    socket?.close(1000);
  }

  /**
   * Full jitter under a doubling bound, so that clients that lost a server together do not reconnect together.
   *
   * @param {number} attempt Counted from 0.
   */
  #delay(attempt) {
    const { first = FIRST_MS, limit = LIMIT_MS } = this.#options.backoff ?? {};
    return Math.random() * Math.min(limit, first * 2 ** Math.min(attempt, 30));
  }

  /** @param {PenstockError | null} error */
  #end(error) {
    clearTimeout(this.#retry);
    this.#leave();
    this.#waking.abort();
    this.#error = error;
    const why = error ?? new PenstockError("CLOSED", "the client was closed");
    const open = [...this.#open];
    this.#open.clear();
    for (const changes of open) changes.tell("over", error);
    for (const { reject } of this.#asked.values()) reject(why);
    this.#asked.clear();
    this.#appends.end(why);
    this.#turn("closed");
  }
}

/**
 * One subscription: an async iterable of events. Fires `progress` when the server reports state, head or cursor, and with
 * `start: "state"` also `ready` once all initial entities are handled.
 *
 * @implements {AsyncIterableIterator<ChangeEvent>}
 */
export class Changes extends EventTarget {
  #wish;
  #link;
  #slot;
  #window;
  /** @type {string | null} */
  #id = null;
  /** @type {(ChangeEvent | Missing | RowsMark)[]} */
  #buffer = [];
  #first = 0; // index of the first buffered item; earlier ones are delivered
  #gaps = 0; // marks in the buffer: gaps, and beginnings and ends of rows
  #rows = 0; // number of requests for rows
  /** @type {Map<number, object>} */
  #asked = new Map(); // requests for rows that have not begun
  /** @type {number[]} */
  #sent = []; // the numbers of those that were sent on this connection, in order
  #ready = false;
  #begun = false;
  #answered = false; // whether the server has confirmed the subscription on this connection
  /** @type {{resolve: (result: any) => void, reject: (error: Error) => void}[]} */
  #waiting = [];
  #demand = 0;
  #paused = false;
  #over = false;
  /** @type {Error | null} */
  #failure = null;
  /** @type {string | null} */
  #handled;
  /** @type {string | null} */
  #given = null;
  /** @type {string | null} */
  #received;
  #requestedAt = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;
  /** @type {{state: "LIVE" | "RESYNC" | null, head: string | null, oldest: string | null, log: string | null, epoch: number | null}} */
  #told = { state: null, head: null, oldest: null, log: null, epoch: null };

  /**
   * @param {Wish} wish
   * @param {{send: (message: object) => void, again: (one: Changes) => void, leave: (one: Changes, id: string | null) => void}} link
   * @param {SlotPlace | null} [slot]
   */
  constructor(wish, link, slot = null) {
    super();
    this.#wish = wish;
    this.#link = link;
    this.#slot = slot;
    this.#window = positive(wish.window ?? WINDOW);
    if (/** @type {any} */ (wish.onGap) === "jump") {
      throw new TypeError('onGap is "jump", but must be a function that is told: history is never left out in silence');
    }
    this.#handled = this.#received = wish.since ?? null;
  }

  /** The cursor behind the last handled event; an event counts as handled once the reader asks for the next one. */
  get cursor() {
    return this.#handled;
  }

  /** The cursor behind everything that has arrived, handled or not. */
  get received() {
    return this.#received;
  }

  /** Whether the server reads from a ring (LIVE) or from the disk (RESYNC), as it last reported; null before. */
  get state() {
    return this.#told.state;
  }

  /** The end of the log, as the server last reported. */
  get head() {
    return this.#told.head;
  }

  /** The oldest cursor that the log keeps, as the server last reported. */
  get oldest() {
    return this.#told.oldest;
  }

  /** The name of the log. */
  get log() {
    return this.#told.log;
  }

  /** The number of requested events that have not arrived. */
  get demand() {
    return this.#demand;
  }

  /** The number of events that have arrived and that the reader has not received yet. */
  get buffered() {
    return this.#buffer.length - this.#first - this.#gaps;
  }

  /** Whether the buffer holds neither an event nor a mark. */
  get #empty() {
    return this.#first === this.#buffer.length;
  }

  /** Whether all initial entities are handled; never true for a subscription without the state. */
  get ready() {
    return this.#ready;
  }

  /** Whether a request for it was sent on the current connection. */
  get subscribed() {
    return this.#id !== null;
  }

  get paused() {
    return this.#paused;
  }

  /** Most events requested and not handled; events that are requested already cannot be withdrawn. */
  get window() {
    return this.#window;
  }

  set window(/** @type {number} */ events) {
    this.#window = positive(events);
    this.#refill();
  }

  /** Stops requesting. Events that are requested already still arrive. */
  pause() {
    this.#paused = true;
  }

  /** Requests events again. */
  resume() {
    this.#paused = false;
    this.#refill();
  }

  /** Whether more rows may be requested. */
  get #takesRows() {
    const { since, start, snapshot } = this.#wish;
    const stated = since == null ? start === "state" : since.startsWith("n1:");
    return snapshot === "initial" || snapshot === "on_gap" || (stated && snapshot === undefined);
  }

  /**
   * Requests rows of the current state, between the changes, which continue; the request survives lost connections. The rows come
   * between two `snapshot` events, whose `detail` is `{what: "begin", snapshot, asked}` and `{what: "end", snapshot}`.
   *
   * @param {{criteria?: Criterion[], after?: string, until?: string}} [which] Selects rows by criteria and by keys: behind `after`,
   *   up to `until`; with keys, `criteria` have to name one entity type. All rows of the subscription by default.
   * @returns {number} The number of the request, from 1, which `asked` repeats.
   */
  refresh(which = {}) {
    if (!this.#takesRows) throw new TypeError('refresh needs start: "state", or snapshot: "initial" or "on_gap"');
    this.#rows += 1;
    if (!this.#over) this.#asked.set(this.#rows, which);
    this.#ask();
    return this.#rows;
  }

  /** Sends requests for rows that are not sent on this connection yet, once the server has confirmed the subscription. */
  #ask() {
    if (this.#id === null || !this.#answered) return;
    for (const [number, payload] of this.#asked) {
      if (this.#sent.includes(number)) continue;
      this.#sent.push(number);
      this.#link.send({ type: "again", id: this.#id, payload });
    }
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<ChangeEvent, undefined>>} */
  next() {
    this.#settle();
    const event = this.#shift();
    if (event !== undefined) return Promise.resolve({ done: false, value: event });
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#over) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** @returns {Promise<IteratorResult<ChangeEvent, undefined>>} */
  return() {
    if (!this.#over) {
      this.#slot?.flush();
      if (this.#id !== null) this.#link.send({ type: "complete", id: this.#id });
      this.#finish(null);
    }
    this.#buffer = [];
    this.#first = this.#gaps = 0;
    return Promise.resolve({ done: true, value: undefined });
  }

  /**
   * Handles a message about this subscription; internal, called by the client.
   *
   * @param {"open" | "subscribed" | "acked" | "gap" | "next" | "snapshot_begin" | "chunk_end" | "snapshot_end" | "checkpoint" | "error" | "complete" | "lost" | "over"} what
   * @param {any} message
   */
  tell(what, message) {
    switch (what) {
      case "open":
        this.#subscribe(message);
        return;
      case "subscribed": {
        const { log, epoch, cursor, oldest, head } = message;
        Object.assign(this.#told, { log, epoch, oldest, head });
        this.#begun = true;
        this.#slot?.opened(message);
        this.#reach(cursor);
        this.#answered = true;
        this.#ask();
        break;
      }
      case "acked":
        this.#slot?.acked(message);
        return;
      case "gap":
        this.#miss(new Missing(message.begin, message.end));
        return;
      case "next":
        this.#take(message);
        return;
      case "snapshot_begin": {
        const { snapshot, cursor } = message;
        const asked = message.asked === undefined ? null : this.#sent[message.asked - 1];
        if (asked !== null) this.#asked.delete(asked);
        this.#insert(new RowsMark(cursor, { what: "begin", snapshot, asked }));
        return;
      }
      case "chunk_end":
        this.#reach(message.cursor);
        break;
      case "snapshot_end":
        this.#insert(new RowsMark(message.cursor, { what: "end", snapshot: message.snapshot }));
        // The completion follows. If it were lost, nothing would be left to resume.
        if (this.#wish.snapshot === "initial_only") this.#finish(null);
        return;
      case "checkpoint":
        Object.assign(this.#told, { state: message.state, head: message.head });
        this.#reach(message.cursor);
        break;
      case "complete":
        if (message.cursor) this.#reach(message.cursor);
        this.#finish(null);
        return;
      case "error":
        this.#failed(message.payload);
        return;
      case "lost":
        this.#forget();
        break;
      case "over":
        this.#finish(message);
        return;
    }
    this.dispatchEvent(new Event("progress"));
  }

  /** @param {string} id */
  #subscribe(id) {
    const { criteria = [{}], log, start, until, content, images, integers, maxEvents, heartbeatMs, onLag } = this.#wish;
    const onGap = typeof this.#wish.onGap === "function" ? "jump" : this.#wish.onGap;
    const inState = this.#received === null ? start === "state" : this.#received.startsWith("n1:");
    // Makes requests for rows possible although the subscription no longer begins with them.
    const later = this.#wish.snapshot === "on_gap" ? "on_gap" : "initial";
    const snapshot = inState ? this.#wish.snapshot : this.#takesRows ? later : undefined;
    const whole = this.#begun ? undefined : this.#wish.whole; // events that have arrived must not arrive again
    const credits = this.#paused ? 0 : Math.max(0, this.#window - this.buffered);
    const place = this.#received === null ? { start } : { since: this.#received };
    const batch = maxEvents === undefined ? undefined : { maxEvents };
    this.#id = id;
    this.#sent = [];
    this.#answered = false;
    this.#demand = credits;
    const options = { until, content, images, integers, batch, heartbeatMs, onLag, onGap, whole, snapshot, credits };
    const slot = this.#slot?.wish();
    const payload =
      slot === undefined
        ? { criteria, log, ...place, ...options }
        : { slot, log, ...(slot.generation === undefined ? {} : place), content, images, integers, batch, heartbeatMs, credits };
    this.#link.send({ type: "subscribe", id, payload });
  }

  /** @param {{events: ChangeEvent[], cursor: string}} message */
  #take({ events, cursor }) {
    this.#demand -= events.length;
    for (const event of events) this.#buffer.push(event);
    this.#received = cursor;
    while (this.#waiting.length && this.buffered) {
      this.#waiting.shift()?.resolve({ done: false, value: /** @type {ChangeEvent} */ (this.#shift()) });
    }
    this.#refill();
  }

  /** Records missing history. A reader that waits has handled everything before the gap, so it is notified at once. */
  #miss(/** @type {Missing} */ gap) {
    this.#received = gap.end;
    const last = this.#empty ? undefined : this.#buffer[this.#buffer.length - 1];
    if (!this.#waiting.length && last instanceof Missing) {
      last.end = gap.end; // retention has advanced meanwhile
    } else {
      this.#insert(gap);
    }
  }

  /** A mark takes effect once everything before it is handled: at once if the reader waits, otherwise from the buffer. */
  #insert(/** @type {Missing | RowsMark} */ mark) {
    this.#received = mark.end;
    if (this.#waiting.length) {
      this.#pass(mark);
    } else {
      this.#buffer.push(mark);
      this.#gaps += 1;
    }
  }

  #pass(/** @type {Missing | RowsMark} */ mark) {
    if (mark instanceof Missing) {
      this.#jump(mark);
      return;
    }
    this.#handled = mark.end;
    this.#given = null;
    this.dispatchEvent(new CustomEvent("snapshot", { detail: mark.detail }));
    if (mark.detail.what === "begin" || this.#ready) return;
    this.#ready = true;
    this.dispatchEvent(new Event("ready"));
  }

  #jump(/** @type {Missing} */ { begin, end }) {
    this.#handled = end;
    this.#given = null;
    const { onGap } = this.#wish;
    if (typeof onGap === "function") onGap({ begin, end });
  }

  /** Takes the next event; marks before it take effect first. */
  #shift() {
    for (let mark = this.#buffer[this.#first]; isMark(mark); mark = this.#buffer[this.#first]) {
      this.#first += 1;
      this.#gaps -= 1;
      this.#pass(mark);
    }
    const event = /** @type {ChangeEvent | undefined} */ (this.#buffer[this.#first]);
    if (event === undefined) return undefined;
    this.#given = event.cursor;
    this.#first += 1;
    if (this.#first === this.#buffer.length || this.#first >= COMPACT_AT) {
      this.#buffer.splice(0, this.#first);
      this.#first = 0;
    }
    this.#refill();
    return event;
  }

  /** The reader asks for the next event, so it has handled the previous one. */
  #settle() {
    if (this.#given !== null) this.#handled = this.#given;
    this.#given = null;
    if (this.#empty && this.#received !== null) this.#handled = this.#received;
  }

  /** The server is behind `cursor`, and everything before it has arrived. */
  #reach(/** @type {string} */ cursor) {
    this.#received = cursor;
    if (this.#given === null && this.#empty) this.#handled = cursor;
  }

  /** Requests more once half of the window is free, at a bounded rate. */
  #refill() {
    const room = this.#window - this.#demand - this.buffered;
    if (this.#paused || this.#id === null || room < 1 || 2 * room < this.#window) return;
    const wait = this.#requestedAt + REQUEST_EVERY_MS - performance.now();
    if (wait > 0) {
      this.#later ??= setTimeout(() => {
        this.#later = undefined;
        this.#refill();
      }, wait);
      return;
    }
    this.#requestedAt = performance.now();
    this.#demand += room;
    this.#link.send({ type: "request", id: this.#id, n: room });
  }

  /** @param {{code: string, message: string, retryable: boolean, cursor?: string}} payload */
  #failed(payload) {
    if (payload.retryable && payload.code !== "LAGGED" && payload.code !== "SLOT_BUSY") {
      this.#forget();
      this.dispatchEvent(new Event("progress"));
      this.#link.again(this);
    } else {
      this.#finish(failure(payload));
    }
  }

  #forget() {
    this.#slot?.lost();
    this.#id = null;
    this.#demand = 0;
    this.#told.state = null;
  }

  /** @param {Error | null} failure */
  #finish(failure) {
    this.#over = true;
    this.#failure = failure;
    this.#slot?.end(failure);
    clearTimeout(this.#later);
    this.#link.leave(this, this.#id);
    this.#forget();
    for (const { resolve, reject } of this.#waiting.splice(0)) {
      if (failure) reject(failure);
      else resolve({ done: true, value: undefined });
    }
    this.dispatchEvent(new Event("progress"));
  }
}

/**
 * The subscription of a slot: its changes from its position on. It opens the slot, and its end releases it.
 */
export class SlotChanges extends Changes {
  #place;

  /**
   * @param {SlotWish} wish
   * @param {any} link
   * @param {SlotPlace} place
   */
  constructor(wish, link, place) {
    super(/** @type {Wish} */ (wish), link, place);
    this.#place = place;
  }

  /** The generation of the opening, as the server last reported; null before. */
  get generation() {
    return this.#place.generation;
  }

  /** The cursor of the next event that is not acknowledged, as the server last reported; null before. */
  get acknowledged() {
    return this.#place.cursor;
  }

  /**
   * Acknowledges an event and everything before it. The acknowledgement is sent at once, or together with those that follow
   * within 0.2 s. An event before one that is already acknowledged is ignored.
   *
   * @param {ChangeEvent} event
   */
  ack(event) {
    this.#place.acknowledge(event, false);
  }

  /**
   * As `ack`; the promise resolves once the acknowledgement survives a crash of the server, and rejects if it cannot be stored.
   *
   * @param {ChangeEvent} event
   * @returns {Promise<void>}
   */
  ackDurably(event) {
    return new Promise((resolve, reject) => this.#place.acknowledge(event, true, { resolve, reject }));
  }
}

/** The opening of a slot and its acknowledgements, over all connections. */
class SlotPlace {
  #told;
  #send;
  /** @type {string | null} */
  #id = null;
  /** @type {ChangeEvent | null} */
  #event = null;
  #last = 0; // the number of the newest acknowledgement,
  #sent = 0; // of the newest that was sent on this connection,
  #durable = 0; // and of the newest durable one
  #stored = 0; // everything up to this one was answered
  #storing = false;
  /** @type {Map<number, {resolve: () => void, reject: (error: Error) => void}>} */
  #waiting = new Map();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** @type {Error | null} */
  #over = null;
  /** @type {number | null} */
  generation = null;
  /** @type {string | null} */
  cursor = null;

  /**
   * @param {{name: string, takeOver?: boolean, owner?: string}} told
   * @param {(message: object) => void} send
   */
  constructor(told, send) {
    const opening = `${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`;
    this.#told = { ...told, opening };
    this.#send = send;
  }

  /** The `slot` field of `subscribe`. @returns {{name: string, opening: string, owner?: string, takeOver?: boolean, generation?: number}} */
  wish() {
    if (this.generation === null) return this.#told;
    return { ...this.#told, takeOver: undefined, generation: this.generation };
  }

  /** @param {{id: string, slot: {generation: number, cursor: string}}} message */
  opened({ id, slot }) {
    this.#id = id;
    this.generation = slot.generation;
    this.cursor = slot.cursor;
    this.flush();
  }

  /**
   * @param {ChangeEvent} event
   * @param {boolean} durable
   * @param {{resolve: () => void, reject: (error: Error) => void}} [waiting]
   */
  acknowledge(event, durable, waiting) {
    if (this.#over !== null) throw this.#over;
    const last = this.#event;
    if (last === null || event.version > last.version || (event.version === last.version && event.index > last.index)) {
      this.#event = event;
    } else if (!durable) {
      return;
    }
    this.#last += 1;
    if (durable) this.#durable = this.#last;
    if (waiting !== undefined) this.#waiting.set(this.#last, waiting);
    if (durable || this.#timer === undefined) this.flush();
  }

  /** Sends the acknowledgement that is due. */
  flush() {
    const wanted = this.#durable > this.#stored && !this.#storing;
    if (this.#id === null || this.#event === null || (this.#sent === this.#last && !wanted)) return;
    this.#sent = this.#last;
    const message = { type: "ack", id: this.#id, cursor: this.#event.cursor };
    if (wanted) {
      this.#storing = true;
      Object.assign(message, { n: this.#last, durable: true });
    }
    this.#send(message);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.flush();
    }, ACK_EVERY_MS);
  }

  /** @param {{n?: number, cursor: string, error?: {code: string, message: string}}} message */
  acked({ n, cursor, error }) {
    this.cursor = cursor;
    if (n === undefined) return;
    this.#storing = false;
    this.#stored = Math.max(this.#stored, n);
    for (const [number, { resolve, reject }] of [...this.#waiting]) {
      if (number > n) continue;
      this.#waiting.delete(number);
      if (error === undefined) resolve();
      else reject(failure(error));
    }
    this.flush();
  }

  /** The connection is gone; its unanswered acknowledgements will be sent again. */
  lost() {
    this.#id = null;
    this.#sent = Math.min(this.#sent, this.#stored);
    this.#storing = false;
  }

  /** @param {Error | null} why */
  end(why) {
    this.#over ??= why ?? new PenstockError("CLOSED", "the slot is not open");
    clearTimeout(this.#timer);
    for (const { reject } of this.#waiting.values()) reject(this.#over);
    this.#waiting.clear();
  }
}

/**
 * @typedef {object} Delivery A delivery to a group consumer.
 * @property {string} at The cursor that identifies it.
 * @property {number} count The number of times it was delivered, this time included.
 * @property {number} generation The generation of the consumer.
 * @property {ChangeEvent[]} events The change, or all changes of a transaction.
 */

/**
 * @typedef {object} Call An unanswered call of a group consumer.
 * @property {{n: number, do: string, payload: object}} told
 * @property {(result: any) => void} resolve
 * @property {(error: Error) => void} reject
 */

/**
 * A group consumer: an async iterable of deliveries, each of which it acknowledges, refuses or gives up. The server answers its
 * methods; calls that are unanswered when the connection is lost are repeated on the next one.
 *
 * @implements {AsyncIterableIterator<Delivery>}
 */
export class Deliveries {
  #wish;
  #link;
  #window;
  /** @type {string | null} */
  #id = null;
  #joined = false;
  /** @type {Delivery[]} */
  #buffer = [];
  /** @type {{resolve: (result: any) => void, reject: (error: Error) => void}[]} */
  #waiting = [];
  #demand = 0;
  #received = 0; // deliveries of this generation
  /** @type {Map<number, Call>} */
  #calls = new Map();
  #last = 0; // the number of the newest call,
  #sent = 0; // and of the newest that was sent on this connection
  #over = false;
  /** @type {Error | null} */
  #failure = null;
  /** @type {number | null} */
  #generation = null;

  /**
   * @param {{group: string, consumer: string, log?: string, history?: boolean, integers?: string}} wish
   * @param {{send: (message: object) => void, again: (one: Deliveries) => void, leave: (one: Deliveries, id: string | null) => void, calls: () => number}} link
   * @param {number} [window] Most deliveries requested and not taken by the reader.
   */
  constructor(wish, link, window = 100) {
    const opening = `${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`;
    this.#wish = { ...wish, opening };
    this.#link = link;
    this.#window = positive(window);
  }

  /** The generation of the joining, as the server last reported; null before. */
  get generation() {
    return this.#generation;
  }

  /** Whether a request for it was sent on the current connection. */
  get subscribed() {
    return this.#id !== null;
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  /** @returns {Promise<IteratorResult<Delivery, undefined>>} */
  next() {
    const value = this.#buffer.shift();
    if (value !== undefined) {
      this.#refill();
      return Promise.resolve({ done: false, value });
    }
    if (this.#failure) return Promise.reject(this.#failure);
    if (this.#over) return Promise.resolve({ done: true, value: undefined });
    return new Promise((resolve, reject) => this.#waiting.push({ resolve, reject }));
  }

  /** Leaves the group: unacknowledged deliveries are due at once, for every consumer. @returns {Promise<IteratorResult<Delivery, undefined>>} */
  return() {
    if (!this.#over) {
      if (this.#id !== null) this.#link.send({ type: "complete", id: this.#id });
      this.#finish(null);
    }
    this.#buffer = [];
    return Promise.resolve({ done: true, value: undefined });
  }

  /**
   * Acknowledges deliveries; returns how many were newly acknowledged.
   *
   * @param {Delivery | Delivery[]} deliveries
   * @param {{durable?: boolean, upto?: boolean}} [how] `durable`: the answer waits until the acknowledgement survives a crash;
   * `upto`: everything up to the one delivery is acknowledged.
   * @returns {Promise<number>}
   */
  ack(deliveries, { durable, upto } = {}) {
    return this.#count(upto ? "ack_upto" : "ack", deliveries, { durable });
  }

  /**
   * Returns deliveries to the group: they are due again, for every consumer. Returns how many were pending.
   *
   * @param {Delivery | Delivery[]} deliveries
   * @param {{delayMs?: number, count?: boolean, error?: string}} [how] `count` is false if the attempt does not count.
   * @returns {Promise<number>}
   */
  nack(deliveries, how = {}) {
    return this.#count("nack", deliveries, how);
  }

  /**
   * Requests more time. @param {Delivery | Delivery[]} deliveries @returns {Promise<number>}
   */
  inProgress(deliveries) {
    return this.#count("in_progress", deliveries, {});
  }

  /**
   * Gives up on deliveries: they become dead letters. @param {Delivery | Delivery[]} deliveries @param {string} reason @returns {Promise<number>}
   */
  term(deliveries, reason) {
    return this.#count("term", deliveries, { reason });
  }

  /**
   * Lists the unacknowledged deliveries of the group.
   *
   * @param {{start?: string, consumer?: string, minIdleMs?: number, limit?: number}} [which]
   * @returns {Promise<{total: number, rows: {at: string, consumer: string, generation: number, idleMs: number, count: number}[]}>}
   */
  pending(which = {}) {
    return this.#say("pending", which);
  }

  /**
   * Takes over deliveries of other consumers. Rejects with CONNECTION_LOST if the outcome is unknown.
   *
   * @param {{at?: string[], start?: string, minIdleMs?: number, limit?: number, onlyIds?: boolean}} [which]
   * @returns {Promise<{deliveries: Delivery[], next: string | null, lost: string[]}>}
   */
  async claim(which = {}) {
    const claimed = await this.#say("claim", which);
    return { ...claimed, deliveries: claimed.deliveries.map((/** @type {any} */ one) => this.#made(one)) };
  }

  /**
   * Handles a message about this consumer; internal, called by the client.
   *
   * @param {string} what
   * @param {any} message
   */
  tell(what, message) {
    switch (what) {
      case "open":
        this.#join(message);
        break;
      case "joined":
        this.#begin(message.group.generation);
        break;
      case "deliveries":
        this.#take(message.items);
        break;
      case "group":
        this.#answered(message);
        break;
      case "error":
        if (message.payload.retryable) {
          this.#forget();
          this.#link.again(this);
        } else {
          this.#finish(failure(message.payload));
        }
        break;
      case "complete":
        this.#finish(null);
        break;
      case "lost":
        this.#forget();
        break;
      case "over":
        this.#finish(message);
        break;
    }
  }

  /** @param {string} id */
  #join(id) {
    this.#id = id;
    this.#demand = Math.max(0, this.#window - this.#buffer.length);
    const resumed = this.#generation === null ? {} : { generation: this.#generation, received: this.#received };
    this.#link.send({ type: "join", id, payload: { ...this.#wish, ...resumed, credits: this.#demand } });
  }

  /** Buffered deliveries of an older generation no longer belong to this consumer; they come again. @param {number} generation */
  #begin(generation) {
    if (this.#generation !== generation) {
      this.#received = 0;
      this.#buffer = [];
    }
    this.#generation = generation;
    this.#joined = true;
    const why = new PenstockError("CONNECTION_LOST", "nobody knows what was claimed; claim again");
    for (const [n, { told, reject }] of [...this.#calls]) {
      if (told.do !== "claim" || n > this.#sent) continue;
      this.#calls.delete(n);
      reject(why);
    }
    this.#sent = 0;
    this.#flush();
    this.#refill();
  }

  /** @param {any[]} items */
  #take(items) {
    this.#demand -= items.length;
    this.#received += items.length;
    this.#buffer.push(...items.map((one) => this.#made(one)));
    while (this.#waiting.length && this.#buffer.length) {
      this.#waiting.shift()?.resolve({ done: false, value: this.#buffer.shift() });
    }
    this.#refill();
  }

  /** @param {any} told @returns {Delivery} */
  #made(told) {
    return { ...told, generation: this.#generation };
  }

  #refill() {
    const room = this.#window - this.#demand - this.#buffer.length;
    if (!this.#joined || room < 1 || 2 * room < this.#window) return;
    this.#demand += room;
    this.#link.send({ type: "request", id: this.#id, n: room });
  }

  /** @param {string} what @param {Delivery | Delivery[]} deliveries @param {object} how @returns {Promise<number>} */
  async #count(what, deliveries, how) {
    const at = [deliveries].flat().map((one) => one.at);
    return at.length ? (await this.#say(what, { at, ...how })).count : 0;
  }

  /** @param {string} what @param {object} payload @returns {Promise<any>} */
  #say(what, payload) {
    if (this.#over) return Promise.reject(this.#failure ?? new PenstockError("CLOSED", "the consumer has left its group"));
    const n = (this.#last += 1);
    return new Promise((resolve, reject) => {
      this.#calls.set(n, { told: { n, do: what, payload }, resolve, reject });
      this.#flush();
    });
  }

  /** Sends the calls that may be sent now. */
  #flush() {
    if (!this.#joined) return;
    for (const { told } of [...this.#calls.values()].slice(0, this.#link.calls())) {
      if (told.n <= this.#sent) continue;
      this.#sent = told.n;
      this.#link.send({ type: "group", id: this.#id, ...told });
    }
  }

  /** @param {{n: number, result?: any, error?: any}} message */
  #answered({ n, result, error }) {
    const call = this.#calls.get(n);
    this.#calls.delete(n);
    if (error === undefined) call?.resolve(result);
    else call?.reject(failure(error));
    this.#flush();
  }

  #forget() {
    this.#id = null;
    this.#joined = false;
    this.#demand = 0;
  }

  /** @param {Error | null} failure */
  #finish(failure) {
    this.#over = true;
    this.#failure = failure;
    this.#link.leave(this, this.#id);
    this.#forget();
    const why = failure ?? new PenstockError("CLOSED", "the consumer has left its group");
    for (const { reject } of this.#calls.values()) reject(why);
    this.#calls.clear();
    for (const { resolve, reject } of this.#waiting.splice(0)) {
      if (failure) reject(failure);
      else resolve({ done: true, value: undefined });
    }
  }
}

/** Errors caused by a predecessor or by lack of room: the append is sent again. */
const PASSING = new Set(["PREDECESSOR_FAILED", "GOING_AWAY", "TOO_MANY_APPENDS", "TOO_COSTLY"]);
/** Errors that exclude an earlier copy: the server finds them after its check for duplicates, or each time. */
const DEFINITE = new Set([
  "EXPECTATION_FAILED", "INVALID_CHANGE", "INVALID_REQUEST", "PRODUCER_CONFLICT", "TRANSACTION_REMOVED", "TRANSACTION_TOO_LARGE",
]);

/**
 * @typedef {object} Append A transaction, over all connections.
 * @property {string} id
 * @property {object} payload
 * @property {number} bytes The bytes of its message.
 * @property {boolean} maybe Whether it was sent on a connection that was lost before the answer.
 * @property {(commit: Commit) => void} resolve
 * @property {(error: Error) => void} reject
 */

/** The transactions of a client: none is lost or written twice, and all stay in order. */
class Appends {
  #link;
  /** @type {Append[]} */
  #queue = []; // not sent on this connection
  /** @type {Map<string, Append>} */
  #sent = new Map(); // sent and not answered, in order
  /** @type {Append[]} */
  #again = []; // refused because of a predecessor or for lack of room, in order
  #bytes = 0;
  #ready = false;
  #held = false; // whether sending waits until all appends are answered, because one was refused
  #crowded = false;
  #refusals = 0; // for lack of room, in a row
  #limits = { appends: 0, appendBytes: 0, messageBytes: 0 };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;

  /** @param {{send: (text: string) => void, delay: (attempt: number) => number}} link */
  constructor(link) {
    this.#link = link;
  }

  /**
   * @param {string} id
   * @param {object} payload
   * @returns {Promise<Commit>}
   */
  add(id, payload) {
    return new Promise((resolve, reject) => {
      this.#queue.push({ id, payload, bytes: 0, maybe: false, resolve, reject });
      this.#flush();
    });
  }

  /** The server has acknowledged a connection. */
  begin(/** @type {any} */ limits) {
    this.#limits = limits;
    this.#ready = true;
    this.#held = this.#crowded = false;
    this.#flush();
  }

  /** @param {Commit & {id: string}} message */
  answered({ id, version, cursor, duplicate, changes, timestamp = null }) {
    this.#refusals = 0;
    this.#take(id)?.resolve({ version, cursor, duplicate, changes, timestamp });
    this.#settle();
  }

  /**
   * Handles an error if it concerns a transaction; returns whether it does.
   *
   * @param {{id: string, payload: {code: string, message: string, retryable?: boolean, outcome?: string}}} message
   */
  refused({ id, payload }) {
    const append = this.#take(id);
    if (append === undefined) return false;
    const { code, retryable } = payload;
    this.#held = true;
    if (PASSING.has(code) && (retryable || code === "PREDECESSOR_FAILED")) {
      this.#again.push(append);
      if (code === "GOING_AWAY") this.#ready = false;
      else if (code !== "PREDECESSOR_FAILED") this.#crowded = true;
    } else {
      const failed = code === "LOG_FAILED" || code === "INTERNAL";
      const outcome = DEFINITE.has(code) ? "refused" : failed ? (payload.outcome ?? "unknown") : told(append);
      append.reject(failure({ ...payload, outcome }));
    }
    this.#settle();
    return true;
  }

  /** The connection is gone; another one may follow. */
  lost() {
    for (const append of this.#sent.values()) append.maybe = true;
    this.#queue.unshift(...this.#again, ...this.#sent.values());
    this.#again = [];
    this.#sent.clear();
    this.#bytes = 0;
    this.#ready = false;
    clearTimeout(this.#later);
  }

  /** No connection will follow. */
  end(/** @type {PenstockError} */ error) {
    this.lost();
    for (const append of this.#queue.splice(0)) {
      append.reject(new PenstockError(error.code, error.message, { ...error.data, outcome: told(append) }));
    }
  }

  /** @param {string} id */
  #take(id) {
    const append = this.#sent.get(id);
    this.#sent.delete(id);
    this.#bytes -= append?.bytes ?? 0;
    return append;
  }

  /** Resumes sending; after a refusal only once all appends are answered. */
  #settle() {
    if (this.#held && this.#sent.size === 0) {
      this.#queue.unshift(...this.#again.splice(0));
      this.#held = false;
      if (this.#crowded && this.#ready) {
        this.#ready = false;
        this.#later = setTimeout(() => this.begin(this.#limits), this.#link.delay(this.#refusals));
        this.#refusals += 1;
        return;
      }
    }
    this.#flush();
  }

  #flush() {
    while (this.#ready && !this.#held && this.#queue.length > 0) {
      const { appends = 0, appendBytes = 0, messageBytes = 0 } = this.#limits;
      const append = this.#queue[0];
      const first = this.#sent.size === 0 ? { first: true } : {};
      const text = JSON.stringify({ type: "append", id: append.id, payload: { ...append.payload, ...first } });
      append.bytes = new TextEncoder().encode(text).length;
      const why = appends === 0 ? "the server takes no appends" : `it has ${append.bytes} bytes, and may have ${messageBytes}`;
      if (appends === 0 || append.bytes > messageBytes) {
        this.#queue.shift();
        append.reject(new PenstockError("TRANSACTION_TOO_LARGE", why, { outcome: told(append) }));
        continue;
      }
      if (this.#sent.size >= appends || (this.#sent.size > 0 && this.#bytes + append.bytes > appendBytes)) return;
      this.#queue.shift();
      this.#bytes += append.bytes;
      this.#sent.set(append.id, append);
      this.#link.send(text);
    }
  }
}

/** The outcome to report for a transaction that is never answered. */
function told(/** @type {Append} */ append) {
  return append.maybe ? "unknown" : "refused";
}

/** @param {{code: string, message: string, [data: string]: any}} payload The payload of an `error` message. */
function failure({ code, message, ...data }) {
  return new PenstockError(code, message, data);
}

/** A mark in the buffer: history is missing here. */
class Missing {
  /**
   * @param {string} begin
   * @param {string} end
   */
  constructor(begin, end) {
    this.begin = begin;
    this.end = end;
  }
}

/** A mark in the buffer: rows begin here, or are complete. */
class RowsMark {
  /**
   * @param {string} end
   * @param {{what: "begin" | "end", snapshot: string, asked?: number | null}} detail
   */
  constructor(end, detail) {
    this.end = end;
    this.detail = detail;
  }
}

/**
 * @param {unknown} item
 * @returns {item is Missing | RowsMark}
 */
function isMark(item) {
  return item instanceof Missing || item instanceof RowsMark;
}

/**
 * @typedef {object} LiveWish Selects entities: all of the type, or those that match all given conditions.
 * @property {string[]} [keys]
 * @property {string[]} [key_globs]
 * @property {string[]} [key_patterns]
 * @property {string} [log] Required if the server has several logs.
 * @property {"NUMBER" | "TEXT"} [integers]
 * @property {number} [window]
 */

/**
 * @typedef {object} MapChange
 * @property {number} version The version of the last change.
 * @property {{operation: string, key: string | undefined, value: any}[]} changes The changes, in order; TRUNCATE has no key.
 */

/**
 * The current entities of a type by key: from the state of the log, and then by every change. While the connection is lost
 * the map keeps its content. If it cannot resume, it keeps its content until the current state is complete.
 *
 * Fires `change` once for each message (`detail`: a `MapChange`), `ready` once it shows all entities and again each time that it
 * has started over, and `error` (`detail`: the error) when it has ended for good.
 *
 * `subscribe` and `snapshot` are what stores of web frameworks need: `useSyncExternalStore(map.subscribe, map.snapshot)` in React,
 * `$map` in Svelte, `map.subscribe((entities) => (reference.value = entities))` in Vue.
 *
 * @implements {Iterable<[string, any]>}
 */
export class LiveMap extends EventTarget {
  #subscribe;
  /** @type {Changes | null} */
  #changes = null;
  /** @type {Map<string, any>} */
  #shown = new Map();
  #complete = false;
  #over = false;
  /** @type {Error | null} */
  #error = null;
  /** @type {MapChange} */
  #changed = { version: 0, changes: [] };
  /** @type {ReadonlyMap<string, any> | null} */
  #snapshot = null;
  /** @type {Set<(entities: ReadonlyMap<string, any>) => void>} */
  #subscribers = new Set();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;

  /** @param {() => Changes} subscribe */
  constructor(subscribe) {
    super();
    this.#subscribe = subscribe;
    /**
     * Resolves once the map shows all entities; rejects if it never will.
     *
     * @type {Promise<this>}
     */
    this.ready = new Promise((resolve, reject) => {
      this.addEventListener("ready", () => resolve(this), { once: true });
      this.addEventListener("error", (event) => reject(/** @type {CustomEvent} */ (event).detail), { once: true });
    });
    this.ready.catch(() => {}); // a program that does not await it gets the `error` event
    this.#follow();
  }

  /** The number of entities. */
  get size() {
    return this.#shown.size;
  }

  /** Whether the map shows all entities and has not had to start over since. */
  get complete() {
    return this.#complete;
  }

  /** Why the map has ended for good; null before, and after `close`. */
  get error() {
    return this.#error;
  }

  /** The entities as they are now, in a map that never changes; the same one until they change. */
  snapshot = () => (this.#snapshot ??= new Map(this.#shown));

  /**
   * Calls a function with the snapshot: now, after each message, and when the map is complete or has ended.
   *
   * @param {(entities: ReadonlyMap<string, any>) => void} run
   * @returns {() => void} A function that ends this.
   */
  subscribe = (run) => {
    const own = (/** @type {ReadonlyMap<string, any>} */ entities) => run(entities);
    this.#subscribers.add(own);
    own(this.snapshot());
    return () => void this.#subscribers.delete(own);
  };

  /** The cursor behind the last change that the map shows. */
  get cursor() {
    return this.#changes?.cursor ?? null;
  }

  /** @param {string} key */
  get(key) {
    return this.#shown.get(key);
  }

  /** @param {string} key */
  has(key) {
    return this.#shown.has(key);
  }

  keys() {
    return this.#shown.keys();
  }

  values() {
    return this.#shown.values();
  }

  entries() {
    return this.#shown.entries();
  }

  [Symbol.iterator]() {
    return this.#shown[Symbol.iterator]();
  }

  /** Stops following the log; the content stays. */
  close() {
    this.#over = true;
    clearTimeout(this.#later);
    this.#changes?.return();
  }

  async #follow() {
    this.#complete = false;
    const behind = this.#shown.size > 0;
    const entities = behind ? new Map() : this.#shown; // the old content stays until the new one is complete
    try {
      const changes = (this.#changes = this.#subscribe());
      changes.addEventListener("ready", () => {
        this.#flush();
        this.#shown = entities;
        this.#complete = true;
        this.#tell(new Event("ready"));
      });
      for await (const event of changes) {
        this.#apply(entities, event);
        if (changes.buffered === 0) this.#flush();
      }
      if (!this.#over) throw new PenstockError("CLOSED", "the client was closed");
    } catch (error) {
      const { code } = /** @type {PenstockError} */ (error);
      if (this.#over) return;
      this.#complete = false;
      this.#flush();
      if (BEGUN_AGAIN.has(code)) {
        this.#later = setTimeout(() => this.#follow(), AGAIN_MS);
        return;
      }
      this.#over = true;
      this.#error = /** @type {Error} */ (error);
      this.#tell(new CustomEvent("error", { detail: error }));
    }
  }

  /**
   * @param {Map<string, any>} entities
   * @param {ChangeEvent} event
   */
  #apply(entities, { operation, key, body, field, version }) {
    if (field !== undefined) return; // the change of its entity came before
    if (operation === "TRUNCATE") entities.clear();
    else if (operation === "REMOVE" || operation === "EXPIRE") entities.delete(/** @type {string} */ (key));
    else entities.set(/** @type {string} */ (key), body);
    if (entities !== this.#shown) return;
    this.#changed.version = version;
    this.#changed.changes.push({ operation, key, value: body });
  }

  /** Tells of the changes that are not told yet. */
  #flush() {
    const detail = this.#changed;
    if (detail.changes.length === 0) return;
    this.#changed = { version: detail.version, changes: [] };
    this.#tell(new CustomEvent("change", { detail }));
  }

  /** @param {Event} event */
  #tell(event) {
    this.#snapshot = null;
    this.dispatchEvent(event);
    for (const run of [...this.#subscribers]) run(this.snapshot());
  }
}

/** @param {number} window */
function positive(window) {
  if (!Number.isSafeInteger(window) || window < 1 || window >= 2 ** 31) {
    throw new RangeError(`window is ${window}, but must be a whole number from 1 to 2^31 - 1`);
  }
  return window;
}
