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
 * The pace is the reader's. A subscription asks for as many events as fit into its window, and for more only when half
 * of them have been handled; whoever stops reading stops asking, and the server keeps the place in the log, not the
 * events. When the connection is lost it is made again, and every subscription goes on behind the last event that it
 * has: nothing is missing, nothing comes twice.
 *
 * `const orders = client.liveMap("order")` is a map of the entities that there are, kept right from then on, where the server
 * keeps the state of the log: `await orders.ready`, then `orders.get("42")`, and an event `change` for each change.
 *
 * `await client.commit([{ entity_type: "order", key: "42", body: { total: 12 } }])` appends a transaction, where the server
 * lets the client write: once, whatever happens to the connection.
 *
 * `const stock = client.slot("stock")` opens a slot, a place that the server keeps: read its changes as any other, and say
 * `stock.ack(event)` of those that were handled. `await client.slots("info", { name: "stock" })` tells how far it is.
 *
 * `for await (const delivery of client.group("pickers", "tab 1"))` joins a group, and is given its changes to share with others:
 * `await worker.ack(delivery)`, or `nack`, `inProgress`, `term`.
 *
 * Bodies are parsed with JSON.parse: integers beyond 2^53 lose their last digits, unless a subscription asks for them as
 * text with `integers: "TEXT"`. A change of an entity without `entry_version` has its `version` for that.
 *
 * @module
 */

/** The sub-protocol spoken here. */
export const SUBPROTOCOL = "penstock.v1+json";

const WINDOW = 256;
const REQUEST_EVERY_MS = 4; // a small window must not become a flood of requests
const ACK_EVERY_MS = 200; // a server stores acknowledgements no oftener
const COMPACT_AT = 1024;
const AGAIN_MS = 500; // until a live map begins again that could not go on
/** What ends a live map's subscription although a new one may show the state of now. */
const BEGUN_AGAIN = new Set(["SNAPSHOT_GONE", "HISTORY_PRUNED", "CURSOR_FORKED", "CURSOR_FOREIGN", "LOG_REPLACED"]);
const FATAL_CLOSES = new Set([4400, 4401, 4403, 4409, 4429]);

/**
 * @typedef {object} ChangeEvent One change, or the TRANSACTION event at the head of a version.
 * @property {string} cursor The place behind it: give it back as `since` to go on there.
 * @property {number} version
 * @property {number} index
 * @property {number} count Events of its transaction.
 * @property {string} timestamp Of the commit, RFC 3339.
 * @property {string} area
 * @property {string} operation
 * @property {string} [entity_type]
 * @property {string} [key]
 * @property {any} [body] Only with content BODY.
 * @property {any} [before] Only with content BODY.
 * @property {string[]} [changed]
 * @property {string} [field] Of a change of a part of an entity, which follows that of the entity.
 * @property {any} [meta]
 *
 * @typedef {object} Criterion Everything that is given must hold.
 * @property {string[]} [areas]
 * @property {string[]} [entity_types]
 * @property {string[]} [keys]
 * @property {string[]} [key_globs]
 * @property {string[]} [key_patterns] Regular expressions that the whole key matches.
 * @property {string[]} [operations]
 * @property {string[]} [changed] Names of fields.
 * @property {{path: string, compare: string, value?: any, image?: "AFTER" | "BEFORE"}[]} [where] All of which must hold.
 * @property {("ENTERED" | "LEFT" | "STAYED")[]} [transitions]
 * @property {{path: string, compare: string, value?: any}[]} [annotations] Of the transaction, all of which must hold.
 *
 * @typedef {"latest" | "earliest" | "state" | {version: number, index?: number} | {time: string | Date} | {transaction: string}} Start
 *   The next version, the oldest that is kept, first the entities that there are as events of operation READ, this one, the first that was committed then or later, or that of this id.
 *
 * @typedef {{begin: string, end: string}} Gap What is missing: from one cursor to another.
 *
 * @typedef {object} Wish
 * @property {Criterion[]} [criteria] Any of which may hold; without one, everything.
 * @property {string} [log] Needed where the server has several.
 * @property {string} [since] A cursor to start at; else `start` holds.
 * @property {Start} [start]
 * @property {number} [until] The last version.
 * @property {"HEADER" | "BODY"} [content]
 * @property {string} [images]
 * @property {"NUMBER" | "TEXT"} [integers] How whole numbers beyond 2^53 are told.
 * @property {number} [window] Most events that are asked for and not handled yet; 256 if left out.
 * @property {number} [maxEvents] Most events in one message.
 * @property {number} [heartbeatMs] How soon the server tells where it is when nothing comes.
 * @property {"resync" | "fail"} [onLag]
 * @property {"fail" | ((gap: Gap) => any)} [onGap] Where history is no longer kept: end in HISTORY_PRUNED, or go on at the
 *   oldest place, and call this function before the first event behind the gap is given to the reader.
 * @property {"never" | "initial" | "initial_only" | "on_gap"} [snapshot] When rows come: with start "state" first, and then every
 *   change ("initial") or the end ("initial_only"); "on_gap": where history is no longer kept; and with "initial" and "on_gap"
 *   whenever `again` asks for them. Left out, "initial" with start "state" and else "never".
 * @property {boolean} [whole] Whether a start inside a transaction sends it again from its beginning.
 *
 * @typedef {object} SlotWish What else is said of a slot, which has criteria and a place of its own.
 * @property {boolean} [takeOver] Whether to take it from the consumer that has it, whose reading ends with FENCED.
 * @property {string} [owner] What another consumer is told that has it.
 * @property {string} [log] Needed where the server has several.
 * @property {"HEADER" | "BODY"} [content]
 * @property {string} [images]
 * @property {"NUMBER" | "TEXT"} [integers] How whole numbers beyond 2^53 are told.
 * @property {number} [window] Most events that are asked for and not handled yet; 256 if left out.
 * @property {number} [maxEvents] Most events in one message.
 * @property {number} [heartbeatMs] How soon the server tells where it is when nothing comes.
 *
 * @typedef {object} SlotOrder What is asked of a slot, or done with it, beside opening it.
 * @property {string} [name] Of the slot; left out for "list".
 * @property {string} [log] Needed where the server has several.
 * @property {Criterion[]} [criteria] Of "create".
 * @property {string} [since] Of "create" and "seek": a cursor.
 * @property {string | object} [start] Likewise: a place that is no cursor.
 * @property {"transaction" | "change"} [granularity] Of "create".
 * @property {string} [copyFrom] Of "create": a slot whose place is taken.
 *
 * @typedef {object} SlotTold
 * @property {string} log
 * @property {string} name
 * @property {"free" | "served" | "lost" | "forked"} state
 * @property {string} cursor The next change that its consumer has not acknowledged.
 * @property {number} version The version of that.
 * @property {number} generation Of the last opening.
 * @property {string | null} owner Who has it open.
 * @property {boolean} paused
 * @property {{versions: number, changes: number | null, bytes: number | null, seconds: number | null}} lag
 * @property {string | null} history What becomes of the history that is held for it.
 * @property {number} heldBytes
 * @property {number | null} bytesLeft Until it is above its cap.
 * @property {number | null} secondsLeft
 *
 * @typedef {object} Schema
 * @property {string} log
 * @property {string} entity_type
 * @property {number} version
 * @property {string} told From this cursor on, a subscription begins with the change that told it.
 * @property {Record<string, any>} parts By name; `entity` describes the entity itself.
 *
 * @typedef {object} NewChange A change to be committed, as `penstock tail` prints it.
 * @property {string} entity_type
 * @property {string} [key]
 * @property {"UPSERT" | "REMOVE" | "TRUNCATE" | "EXPIRE" | "REKEY"} [operation] UPSERT if it is left out.
 * @property {any} [body]
 * @property {any} [before]
 * @property {string[] | "auto"} [changed]
 * @property {Record<string, any>} [meta]
 * @property {string} [new_key] With REKEY.
 * @property {string} [expires_at]
 *
 * @typedef {object} CommitOptions
 * @property {string} [log] Needed where the server has several.
 * @property {string} [producer] For a program that repeats by itself what it has not heard of, also after a restart.
 * @property {number} [sequence] Rises with each transaction of the producer.
 * @property {string | {cursor: string, keys: {entity_type: string, key: string}[]}} [expect] A cursor behind which nothing may have
 *   been committed; with keys, nothing of these.
 * @property {Record<string, any>} [meta] Annotations of the transaction.
 * @property {"accepted" | "durable" | "visible"} [wait] How far it is to be; durable if it is left out.
 *
 * @typedef {object} Commit
 * @property {number} version 0 if it was a repetition of which nobody knows the version any more.
 * @property {string | null} cursor The place behind it.
 * @property {boolean} duplicate Whether it had been committed before.
 * @property {number} changes The TRANSACTION event included.
 * @property {string | null} timestamp When it was committed; null for a repetition.
 *
 * @typedef {object} Options
 * @property {string} [token] For servers that ask for one.
 * @property {{first?: number, limit?: number}} [backoff] Milliseconds before the first and, at most, any later attempt.
 * @property {typeof WebSocket} [WebSocket] Where there is none by that name.
 */

/** What ended a subscription or a connection for good. */
export class PenstockError extends Error {
  /**
   * @param {string} code As docs/protocol.md lists them, or the close code of a connection.
   * @param {string} message
   * @param {Record<string, any>} [data] What came with it.
   */
  constructor(code, message, data = {}) {
    super(`${code}: ${message}`);
    this.name = "PenstockError";
    this.code = code;
    this.data = data;
  }
}

/**
 * Connects to a server.
 *
 * @param {string | URL} url Of its endpoint; `http:` and `https:` count as `ws:` and `wss:`.
 * @param {Options} [options]
 */
export function connect(url, options = {}) {
  return new Client(url, options);
}

/** A connection that is made again whenever it is lost. Fires `status` when it changes. */
export class Client extends EventTarget {
  #url;
  #options;
  /** @type {WebSocket | null} */
  #socket = null;
  /** @type {Set<Changes | Deliveries>} */
  #open = new Set();
  /** @type {Map<string, Changes | Deliveries>} */
  #byId = new Map();
  /** @type {Map<string, {message: object, resolve: (answer: any) => void, reject: (error: Error) => void}>} */
  #asked = new Map();
  #appends = new Appends({ send: (text) => this.#write(text), delay: () => this.#delay() });
  #producer = `connection-${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`;
  #sequence = 0;
  /** @type {"connecting" | "open" | "waiting" | "closed"} */
  #status = "connecting";
  #attempts = 0;
  #serial = 0;
  #calls = 1; // of a consumer of a group, that the server takes before it has answered them
  #heard = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #retry;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  #watch;

  /**
   * @param {string | URL} url
   * @param {Options} options
   */
  constructor(url, options) {
    super();
    this.#url = String(url).replace(/^http/, "ws");
    this.#options = options;
    this.#dial();
  }

  /** `connecting`, `open`, `waiting` for the next attempt, or `closed`. */
  get status() {
    return this.#status;
  }

  /**
   * Subscribes. What comes back is read with `for await`, by one reader; leaving the loop ends the subscription.
   *
   * @param {Wish} [wish]
   * @returns {Changes}
   */
  changes(wish = {}) {
    return this.#opened(new Changes(wish, this.#link()));
  }

  /**
   * Opens a slot for its one consumer, which reads it as any other subscription, and acknowledges. Leaving the loop gives it back;
   * a lost connection does not: reading goes on behind the last event that came, unless another consumer has opened it since.
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
   * Joins a group as one of its consumers, which are given its changes to share: read them with `for await`, by one reader, and say
   * what became of each. Leaving the loop leaves the group. A lost connection does not, if the client is back within the grace time
   * of the server: what it was given is still its own, and what was on its way comes again.
   *
   * @param {string} name
   * @param {string} consumer What it is called; another one that joins under this name takes its place.
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
   * The entities of a type, kept right from the state on; its server has to keep the state of the log.
   *
   * @param {string} entityType
   * @param {LiveWish} [wish] Which of them.
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
   * A schema that was told, by its version, or the newest; null if there is none. It answers for every `schema_version`
   * that an event names, whatever became of the change that told it, and what was told never changes.
   *
   * @param {string} entityType
   * @param {{version?: number, log?: string}} [which]
   * @returns {Promise<Schema | null>}
   */
  schema(entityType, { version, log } = {}) {
    return this.#ask("schema", { entity_type: entityType, version, log });
  }

  /**
   * Asks about slots, or has something done with one, beside opening it: what they tell of themselves then. What was not answered
   * when the connection was lost is asked again on the next one.
   *
   * @param {"list" | "info" | "create" | "seek" | "pause" | "resume" | "drop"} what
   * @param {SlotOrder} [order]
   * @returns {Promise<SlotTold[]>}
   */
  slots(what, order = {}) {
    return this.#ask("slot", { ...order, do: what });
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
   * Commits changes as one transaction; transactions are written in the order of the calls, and many may be under way. What was
   * not answered when the connection was lost is sent again on the next one, and written once.
   *
   * The promise is rejected with a `PenstockError` if the server refuses it, or the client ends; `data.outcome` is then
   * `"refused"`, or `"unknown"` where it may have been written all the same.
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
    this.#end(null);
  }

  #dial() {
    const Socket = this.#options.WebSocket ?? WebSocket;
    const socket = new Socket(this.#url, SUBPROTOCOL);
    this.#socket = socket;
    this.#turn("connecting");
    socket.onopen = () => {
      const { token } = this.#options;
      this.#send({ type: "connection_init", payload: token === undefined ? {} : { token } });
    };
    socket.onmessage = ({ data }) => {
      if (socket === this.#socket) this.#receive(JSON.parse(data));
    };
    socket.onclose = ({ code, reason }) => {
      if (socket === this.#socket) this.#lost(code, reason);
    };
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

  /** @param {string} text */
  #write(text) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(text); // else it is lost, as what was sent before
  }

  /** @param {any} message */
  #receive(message) {
    this.#heard = Date.now();
    switch (message.type) {
      case "connection_ack":
        this.#attempts = 0;
        this.#guard(message.payload?.keepAliveMs ?? 12_000);
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
        for (const item of message.items) this.#byId.get(item.id)?.tell("checkpoint", item);
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
        this.#byId.get(message.id)?.tell(message.type, message);
        break;
      case "schema":
      case "slot":
      case "groups":
        this.#asked.get(message.id)?.resolve(message.payload);
        this.#asked.delete(message.id);
        break;
      case "error":
      case "complete": {
        if (this.#appends.refused(message)) break;
        const asked = this.#asked.get(message.id);
        if (asked !== undefined) {
          if (message.payload.code === "GOING_AWAY") break; // asked again on the next connection
          this.#asked.delete(message.id);
          asked.reject(failure(message.payload));
          break;
        }
        const changes = this.#byId.get(message.id);
        this.#byId.delete(message.id);
        changes?.tell(message.type, message);
        break;
      }
      default: // pong; goaway, after which the server closes with 1012
    }
  }

  /** @param {Changes | Deliveries} changes */
  #subscribe(changes) {
    const id = `c${(this.#serial += 1)}`;
    this.#byId.set(id, changes);
    changes.tell("open", id);
  }

  /** @param {Changes | Deliveries} changes */
  #again(changes) {
    const wait = this.#delay();
    setTimeout(() => {
      // If the connection was lost meanwhile, the next one subscribes everybody.
      if (this.#status === "open" && this.#open.has(changes) && !changes.subscribed) this.#subscribe(changes);
    }, wait);
  }

  /** A browser does not see the pings of a WebSocket, so a silent connection is asked, and then given up. */
  #guard(/** @type {number} */ keepAliveMs) {
    clearInterval(this.#watch);
    this.#watch = setInterval(() => {
      const silent = Date.now() - this.#heard;
      if (silent > 2.5 * keepAliveMs) {
        const socket = this.#socket;
        this.#lost(1006, "nothing was heard of the server");
        socket?.close();
      } else if (silent > 0.9 * keepAliveMs) {
        this.#send({ type: "ping" });
      }
    }, keepAliveMs);
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  #lost(code, reason) {
    clearInterval(this.#watch);
    this.#socket = null;
    this.#byId.clear();
    this.#appends.lost();
    if (FATAL_CLOSES.has(code)) {
      this.#end(new PenstockError(String(code), reason || "the server closed the connection"));
      return;
    }
    for (const changes of this.#open) changes.tell("lost", null);
    this.#turn("waiting");
    this.#retry = setTimeout(() => this.#dial(), this.#delay());
  }

  /** Back-off that doubles, with jitter, so that those who lost a server together do not come back together. */
  #delay() {
    const { first = 250, limit = 10_000 } = this.#options.backoff ?? {};
    const most = Math.min(limit, first * 2 ** Math.min(this.#attempts, 20));
    this.#attempts += 1;
    return most * (0.5 + Math.random() / 2);
  }

  /** @param {PenstockError | null} error */
  #end(error) {
    clearTimeout(this.#retry);
    clearInterval(this.#watch);
    const [socket, open] = [this.#socket, [...this.#open]];
    this.#socket = null;
    this.#open.clear();
    this.#byId.clear();
    for (const changes of open) changes.tell("over", error);
    for (const { reject } of this.#asked.values()) {
      reject(error ?? new PenstockError("CLOSED", "the client was closed"));
    }
    this.#asked.clear();
    this.#appends.end(error ?? new PenstockError("CLOSED", "the client was closed"));
    socket?.close(1000);
    this.#turn("closed");
  }
}

/**
 * One subscription: an async iterable of events. Fires `progress` when state, head or place were told anew, and `ready` when all
 * entities were handled that there were, with `start: "state"`.
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
  #first = 0; // of the buffer: what is before it has been given away
  #gaps = 0; // in the buffer, and beginnings and ends of rows
  #rows = 0; // how often they were asked for
  /** @type {Map<number, object>} */
  #asked = new Map(); // rows that were asked for and have not begun
  /** @type {number[]} */
  #sent = []; // those of them that were asked for on this connection, in this order
  #ready = false;
  #begun = false;
  #answered = false; // the subscription, on this connection
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

  /** The place behind the last event that was handled; an event counts as handled when the next one is asked for. */
  get cursor() {
    return this.#handled;
  }

  /** The place behind everything that has arrived, handled or not. */
  get received() {
    return this.#received;
  }

  /** Whether the ring of the server serves it, or the log on disk, as far as was told; else null. */
  get state() {
    return this.#told.state;
  }

  /** The end of the log, when it was last told. */
  get head() {
    return this.#told.head;
  }

  /** The beginning of what the log keeps, when it was last told. */
  get oldest() {
    return this.#told.oldest;
  }

  /** Name of the log. */
  get log() {
    return this.#told.log;
  }

  /** Events asked for that have not come. */
  get demand() {
    return this.#demand;
  }

  /** Events that have come and were not given to the reader yet. */
  get buffered() {
    return this.#buffer.length - this.#first - this.#gaps;
  }

  /** Whether there is neither an event nor a gap to be given to the reader. */
  get #empty() {
    return this.#first === this.#buffer.length;
  }

  /** Whether all entities were handled that there were; of a subscription without the state, never. */
  get ready() {
    return this.#ready;
  }

  /** Whether the server knows of it at this moment. */
  get subscribed() {
    return this.#id !== null;
  }

  get paused() {
    return this.#paused;
  }

  /** Most events that are asked for and not handled; what was asked for already cannot be taken back. */
  get window() {
    return this.#window;
  }

  set window(/** @type {number} */ events) {
    this.#window = positive(events);
    this.#refill();
  }

  /** Asks for nothing more. What was asked for before still comes. */
  pause() {
    this.#paused = true;
  }

  /** Asks again. */
  resume() {
    this.#paused = false;
    this.#refill();
  }

  /** Whether rows may be asked for once more. */
  get #takesRows() {
    const { since, start, snapshot } = this.#wish;
    const stated = since == null ? start === "state" : since.startsWith("n1:");
    return snapshot === "initial" || snapshot === "on_gap" || (stated && snapshot === undefined);
  }

  /**
   * Asks for rows of the present once more, between the changes, which go on; over lost connections too. They come between two
   * events `snapshot`, whose `detail` is `{what: "begin", snapshot, asked}` and `{what: "end", snapshot}`.
   *
   * @param {{criteria?: Criterion[], after?: string, until?: string}} [which] Of which rows, and of which keys: behind `after`, up
   *   to `until`, for which `criteria` have to name one entity type. All that were subscribed to if left out.
   * @returns {number} Their number, from 1, which `asked` tells.
   */
  again(which = {}) {
    if (!this.#takesRows) throw new TypeError('again needs start: "state", or snapshot: "initial" or "on_gap"');
    this.#rows += 1;
    if (!this.#over) this.#asked.set(this.#rows, which);
    this.#ask();
    return this.#rows;
  }

  /** Sends what was asked for and was not sent on this connection, once it is subscribed. */
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
   * What the client learns about this subscription; not for others.
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
        // Its end is on the way; were it lost, there would be nothing to go on with.
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
    // So that rows can be asked for, where it does not begin with them any more.
    const later = this.#wish.snapshot === "on_gap" ? "on_gap" : "initial";
    const snapshot = inState ? this.#wish.snapshot : this.#takesRows ? later : undefined;
    const whole = this.#begun ? undefined : this.#wish.whole; // what has come is not to come again
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

  /** History is missing. Who waits for the next event has handled all that came before the gap, and is told at once. */
  #miss(/** @type {Missing} */ gap) {
    this.#received = gap.end;
    const last = this.#empty ? undefined : this.#buffer[this.#buffer.length - 1];
    if (!this.#waiting.length && last instanceof Missing) {
      last.end = gap.end; // retention has gone on meanwhile
    } else {
      this.#insert(gap);
    }
  }

  /** What is no event is told when all that was before it has been handled, as it has been if somebody waits. */
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

  /** Takes the next event, having told what is before it. */
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

  /** The reader asks for the next event, so it has handled the one before. */
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

  /** Asks for more when half of the window is free, and not too often. */
  #refill() {
    const room = this.#window - this.#demand - this.buffered;
    if (this.#paused || this.#id === null || room < 1 || 2 * room < this.#window) return;
    const wait = this.#requestedAt + REQUEST_EVERY_MS - Date.now();
    if (wait > 0) {
      this.#later ??= setTimeout(() => {
        this.#later = undefined;
        this.#refill();
      }, wait);
      return;
    }
    this.#requestedAt = Date.now();
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
 * The subscription of a slot: its changes from its place on. It opens the slot, and its end gives it back.
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

  /** Of the opening, as the server last told; null before that. */
  get generation() {
    return this.#place.generation;
  }

  /** The cursor of the next event that is not acknowledged, as the server last told; null before that. */
  get acknowledged() {
    return this.#place.cursor;
  }

  /**
   * Acknowledges an event and everything before it. It is sent at once, or with those that follow within 0.2 s; what lies before
   * an event that was acknowledged is ignored.
   *
   * @param {ChangeEvent} event
   */
  ack(event) {
    this.#place.acknowledge(event, false);
  }

  /**
   * As `ack`; the promise is resolved when a crash of the server cannot take it, and rejected if it cannot be stored.
   *
   * @param {ChangeEvent} event
   * @returns {Promise<void>}
   */
  ackDurably(event) {
    return new Promise((resolve, reject) => this.#place.acknowledge(event, true, { resolve, reject }));
  }
}

/** Which opening of a slot it is, and what is acknowledged of it, over all connections. */
class SlotPlace {
  #told;
  #send;
  /** @type {string | null} */
  #id = null;
  /** @type {ChangeEvent | null} */
  #event = null;
  #last = 0; // the number of the newest acknowledgement,
  #sent = 0; // of the newest that was sent on this connection,
  #durable = 0; // of the newest that is to be durable,
  #stored = 0; // and up to here all were answered
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

  /** What `subscribe` says of it. */
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

  /** Sends what was acknowledged and not sent. */
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

  /** The connection is gone; what was sent on it and not answered is sent again. */
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
 * @typedef {object} Delivery Something that a consumer of a group was given.
 * @property {string} at Its place, by which it is known.
 * @property {number} count How often it was delivered, this time included.
 * @property {number} generation Of the consumer.
 * @property {ChangeEvent[]} events The change, or all of a transaction.
 */

/**
 * @typedef {object} Call Something that a consumer has said, and that is not answered.
 * @property {{n: number, do: string, payload: object}} told
 * @property {(result: any) => void} resolve
 * @property {(error: Error) => void} reject
 */

/**
 * A consumer of a group: an async iterable of deliveries, of which each is acknowledged, refused or given up. Its methods take
 * deliveries, and are answered by the server; what was not answered on a connection that was lost is said again on the next one.
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
  #sent = 0; // and of the newest that was sent
  #over = false;
  /** @type {Error | null} */
  #failure = null;
  /** @type {number | null} */
  #generation = null;

  /**
   * @param {{group: string, consumer: string, log?: string, history?: boolean, integers?: string}} wish
   * @param {{send: (message: object) => void, again: (one: Deliveries) => void, leave: (one: Deliveries, id: string | null) => void, calls: () => number}} link
   * @param {number} [window] Most deliveries that are asked for and not taken by the reader.
   */
  constructor(wish, link, window = 100) {
    const opening = `${Math.random().toString(36).slice(2)}${Date.now().toString(36)}`;
    this.#wish = { ...wish, opening };
    this.#link = link;
    this.#window = positive(window);
  }

  /** Of the joining, as the server last told; null before that. */
  get generation() {
    return this.#generation;
  }

  /** Whether the server knows of it at this moment. */
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

  /** Leaves: what was not acknowledged is due at once, for every consumer. @returns {Promise<IteratorResult<Delivery, undefined>>} */
  return() {
    if (!this.#over) {
      if (this.#id !== null) this.#link.send({ type: "complete", id: this.#id });
      this.#finish(null);
    }
    this.#buffer = [];
    return Promise.resolve({ done: true, value: undefined });
  }

  /**
   * Acknowledges; tells how many were newly acknowledged.
   *
   * @param {Delivery | Delivery[]} deliveries
   * @param {{durable?: boolean, upto?: boolean}} [how] Whether it is answered only when a crash cannot take it, and whether
   * everything up to the one delivery is meant.
   * @returns {Promise<number>}
   */
  ack(deliveries, { durable, upto } = {}) {
    return this.#count(upto ? "ack_upto" : "ack", deliveries, { durable });
  }

  /**
   * Refuses: they are due again, for every consumer; tells how many were pending.
   *
   * @param {Delivery | Delivery[]} deliveries
   * @param {{delayMs?: number, count?: boolean, error?: string}} [how] `count` is false if they were not tried.
   * @returns {Promise<number>}
   */
  nack(deliveries, how = {}) {
    return this.#count("nack", deliveries, how);
  }

  /**
   * Asks for more time. @param {Delivery | Delivery[]} deliveries @returns {Promise<number>}
   */
  inProgress(deliveries) {
    return this.#count("in_progress", deliveries, {});
  }

  /**
   * Gives up: they become dead letters. @param {Delivery | Delivery[]} deliveries @param {string} reason @returns {Promise<number>}
   */
  term(deliveries, reason) {
    return this.#count("term", deliveries, { reason });
  }

  /**
   * What the group has delivered and is not acknowledged.
   *
   * @param {{start?: string, consumer?: string, minIdleMs?: number, limit?: number}} [which]
   * @returns {Promise<{total: number, rows: {at: string, consumer: string, generation: number, idleMs: number, count: number}[]}>}
   */
  pending(which = {}) {
    return this.#say("pending", which);
  }

  /**
   * Takes over what others have. It is rejected with CONNECTION_LOST if nobody knows whether that was done.
   *
   * @param {{at?: string[], start?: string, minIdleMs?: number, limit?: number, onlyIds?: boolean}} [which]
   * @returns {Promise<{deliveries: Delivery[], next: string | null, lost: string[]}>}
   */
  async claim(which = {}) {
    const claimed = await this.#say("claim", which);
    return { ...claimed, deliveries: claimed.deliveries.map((/** @type {any} */ one) => this.#made(one)) };
  }

  /**
   * What the client learns about this consumer; not for others.
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

  /** What is buffered of an older generation is another one's by now, and comes again. @param {number} generation */
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

  /** Sends what may be sent now. */
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

/** What is refused for the sake of something else, or of room, and is sent again. */
const PASSING = new Set(["PREDECESSOR_FAILED", "GOING_AWAY", "TOO_MANY_APPENDS", "TOO_COSTLY"]);
/** What is refused behind the look for repetitions, or whenever it is sent: an earlier copy was not written either. */
const DEFINITE = new Set(["EXPECTATION_FAILED", "INVALID_CHANGE", "INVALID_REQUEST", "TRANSACTION_TOO_LARGE"]);

/**
 * @typedef {object} Append A transaction, over all connections.
 * @property {string} id
 * @property {object} payload
 * @property {number} bytes Of its message.
 * @property {boolean} maybe Whether it was sent on a connection that was lost before the answer.
 * @property {(commit: Commit) => void} resolve
 * @property {(error: Error) => void} reject
 */

/** The transactions of a client: nothing is lost, nothing is written twice, all are in order. */
class Appends {
  #link;
  /** @type {Append[]} */
  #queue = []; // not sent on this connection
  /** @type {Map<string, Append>} */
  #sent = new Map(); // and not answered, in order
  /** @type {Append[]} */
  #again = []; // refused for the sake of something else, in order
  #bytes = 0;
  #ready = false;
  #held = false; // until all are answered, as one was refused
  #crowded = false;
  #limits = { appends: 0, appendBytes: 0, messageBytes: 0 };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;

  /** @param {{send: (text: string) => void, delay: () => number}} link */
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

  /** A connection was acknowledged. */
  begin(/** @type {any} */ limits) {
    this.#limits = limits;
    this.#ready = true;
    this.#held = this.#crowded = false;
    this.#flush();
  }

  /** @param {Commit & {id: string}} message */
  answered({ id, version, cursor, duplicate, changes, timestamp = null }) {
    this.#take(id)?.resolve({ version, cursor, duplicate, changes, timestamp });
    this.#settle();
  }

  /**
   * Whether an error was about a transaction.
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

  /** The connection is gone; there may be another one. */
  lost() {
    for (const append of this.#sent.values()) append.maybe = true;
    this.#queue.unshift(...this.#again, ...this.#sent.values());
    this.#again = [];
    this.#sent.clear();
    this.#bytes = 0;
    this.#ready = false;
    clearTimeout(this.#later);
  }

  /** There will be none. */
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

  /** Goes on, once all are answered if one was refused. */
  #settle() {
    if (this.#held && this.#sent.size === 0) {
      this.#queue.unshift(...this.#again.splice(0));
      this.#held = false;
      if (this.#crowded && this.#ready) {
        this.#ready = false;
        this.#later = setTimeout(() => this.begin(this.#limits), this.#link.delay());
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

/** What became of a transaction, if that is never told. */
function told(/** @type {Append} */ append) {
  return append.maybe ? "unknown" : "refused";
}

/** @param {{code: string, message: string}} payload Of an `error` message. */
function failure({ code, message, ...data }) {
  return new PenstockError(code, message, data);
}

/** A place in the buffer where history is missing. */
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

/** A place in the buffer where rows begin, or where all have come. */
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
 * @typedef {object} LiveWish Which entities: all of the type, or those that fulfil all that is given.
 * @property {string[]} [keys]
 * @property {string[]} [key_globs]
 * @property {string[]} [key_patterns]
 * @property {string} [log] Needed where the server has several.
 * @property {"NUMBER" | "TEXT"} [integers]
 * @property {number} [window]
 */

/**
 * The entities of a type by their keys, as they are: from the state of the log, and then by every change. Lost connections
 * leave it as it was then, until it goes on; where it cannot go on, it shows what it had until the state of now is complete.
 *
 * Fires `change` (`detail`: `{operation, key, value}`, of TRUNCATE without a key), `ready` when it shows all entities, again
 * after each time that it could not go on, and `error` (`detail`: the error) when it has ended for good.
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
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #later;

  /** @param {() => Changes} subscribe */
  constructor(subscribe) {
    super();
    this.#subscribe = subscribe;
    /**
     * Fulfilled when all entities are there; rejected if they never will be.
     *
     * @type {Promise<this>}
     */
    this.ready = new Promise((resolve, reject) => {
      this.addEventListener("ready", () => resolve(this), { once: true });
      this.addEventListener("error", (event) => reject(/** @type {CustomEvent} */ (event).detail), { once: true });
    });
    this.ready.catch(() => {}); // who does not wait for it is told by `error`
    this.#follow();
  }

  /** How many entities there are. */
  get size() {
    return this.#shown.size;
  }

  /** Whether all entities are there, and were not lost since. */
  get complete() {
    return this.#complete;
  }

  /** The place behind the last change that it shows. */
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

  /** Follows no longer; what it shows stays. */
  close() {
    this.#over = true;
    clearTimeout(this.#later);
    this.#changes?.return();
  }

  async #follow() {
    this.#complete = false;
    const behind = this.#shown.size > 0;
    const entities = behind ? new Map() : this.#shown; // what is shown stays until all is there
    try {
      const changes = (this.#changes = this.#subscribe());
      changes.addEventListener("ready", () => {
        this.#shown = entities;
        this.#complete = true;
        this.dispatchEvent(new Event("ready"));
      });
      for await (const event of changes) this.#apply(entities, event);
      if (!this.#over) throw new PenstockError("CLOSED", "the client was closed");
    } catch (error) {
      const { code } = /** @type {PenstockError} */ (error);
      if (this.#over) return;
      this.#complete = false;
      if (BEGUN_AGAIN.has(code)) {
        this.#later = setTimeout(() => this.#follow(), AGAIN_MS);
        return;
      }
      this.#over = true;
      this.dispatchEvent(new CustomEvent("error", { detail: error }));
    }
  }

  /**
   * @param {Map<string, any>} entities
   * @param {ChangeEvent} event
   */
  #apply(entities, { operation, key, body, field }) {
    if (field !== undefined) return; // the change of its entity has come before it
    if (operation === "TRUNCATE") entities.clear();
    else if (operation === "REMOVE" || operation === "EXPIRE") entities.delete(/** @type {string} */ (key));
    else entities.set(/** @type {string} */ (key), body);
    if (entities === this.#shown) this.dispatchEvent(new CustomEvent("change", { detail: { operation, key, value: body } }));
  }
}

/** @param {number} window */
function positive(window) {
  if (!Number.isSafeInteger(window) || window < 1 || window >= 2 ** 31) {
    throw new RangeError(`window is ${window}, but must be a whole number from 1 to 2^31 - 1`);
  }
  return window;
}
