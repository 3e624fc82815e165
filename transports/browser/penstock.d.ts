/**
 * Connects to a server.
 *
 * @param {string | URL} url The URL of the endpoint; `http:` and `https:` mean `ws:` and `wss:`.
 * @param {Options} [options]
 */
export function connect(url: string | URL, options?: Options): Client;
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
export const SUBPROTOCOL: "penstock.v1+json";
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
    constructor(code: string, message: string, data?: Record<string, any>, cause?: unknown);
    code: string;
    data: Record<string, any>;
}
/** A connection that is re-established whenever it is lost. Fires `status` when its status changes. */
export class Client extends EventTarget {
    /**
     * @param {string | URL} url
     * @param {Options} options
     */
    constructor(url: string | URL, options: Options);
    /** Why there is no connection: the reason of the last loss, or of the end; null while there is one, before, and after `close`. */
    get error(): PenstockError | null;
    /** `connecting`, `open`, `waiting` for the next attempt, or `closed`. */
    get status(): "connecting" | "open" | "waiting" | "closed";
    /**
     * Subscribes. Read the result with `for await`, with a single reader; leaving the loop ends the subscription.
     *
     * @param {Wish} [wish]
     * @returns {Changes}
     */
    changes(wish?: Wish): Changes;
    /**
     * Opens a slot for its one consumer, which reads it like any other subscription, and acknowledges. Leaving the loop releases
     * the slot. A lost connection does not: reading resumes behind the last event that arrived, unless another consumer has
     * opened the slot meanwhile.
     *
     * @param {string} name
     * @param {SlotWish} [wish]
     * @returns {SlotChanges}
     */
    slot(name: string, { takeOver, owner, ...wish }?: SlotWish): SlotChanges;
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
    group(name: string, consumer: string, { window, ...wish }?: {
        log?: string;
        window?: number;
        history?: boolean;
        integers?: "NUMBER" | "TEXT";
    }): Deliveries;
    /**
     * Returns a map of the current entities of a type, kept up to date; the server has to keep the state of the log.
     *
     * @param {string} entityType
     * @param {LiveWish} [wish] Selects entities.
     * @returns {LiveMap}
     */
    liveMap(entityType: string, wish?: LiveWish): LiveMap;
    /**
     * Returns a schema by its version, or the newest; null if there is none. Every `schema_version` that an event names is
     * found, even if the change that recorded the schema is no longer kept, and a version never changes.
     *
     * @param {string} entityType
     * @param {{version?: number, log?: string}} [which]
     * @returns {Promise<Schema | null>}
     */
    schema(entityType: string, { version, log }?: {
        version?: number;
        log?: string;
    }): Promise<Schema | null>;
    /**
     * Executes an order on slots other than opening one, and returns the slots afterwards. An order that is unanswered when the
     * connection is lost is repeated on the next one.
     *
     * @param {"list" | "info" | "create" | "seek" | "pause" | "resume" | "drop"} what
     * @param {SlotOrder} [order]
     * @returns {Promise<SlotTold[]>}
     */
    slots(what: "list" | "info" | "create" | "seek" | "pause" | "resume" | "drop", order?: SlotOrder): Promise<SlotTold[]>;
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
    groups(what: "info" | "create" | "reset" | "pause" | "resume" | "drop" | "pending" | "dead" | "discard" | "release", order: GroupOrder): Promise<any>;
    /**
     * Iterates over the dead letters of a group, in the order of their positions, a page at a time. To replay them, handle each
     * letter, and then discard it with `groups("discard", { name, positions: [letter.position] })`.
     *
     * @param {string} name
     * @param {{log?: string, limit?: number}} [which]
     * @returns {AsyncGenerator<DeadLetter, void>}
     */
    deadLetters(name: string, which?: {
        log?: string;
        limit?: number;
    }): AsyncGenerator<DeadLetter, void>;
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
    commit(changes: NewChange[], { log, producer, sequence, expect, meta, wait }?: CommitOptions): Promise<Commit>;
    /** Ends every subscription and the connection, for good. */
    close(): void;
    #private;
}
/**
 * One subscription: an async iterable of events. Fires `progress` when the server reports state, head or cursor, and with
 * `start: "state"` also `ready` once all initial entities are handled.
 *
 * @implements {AsyncIterableIterator<ChangeEvent>}
 */
export class Changes extends EventTarget implements AsyncIterableIterator<ChangeEvent> {
    /**
     * @param {Wish} wish
     * @param {{send: (message: object) => void, again: (one: Changes) => void, leave: (one: Changes, id: string | null) => void}} link
     * @param {SlotPlace | null} [slot]
     */
    constructor(wish: Wish, link: {
        send: (message: object) => void;
        again: (one: Changes) => void;
        leave: (one: Changes, id: string | null) => void;
    }, slot?: SlotPlace | null);
    /** The cursor behind the last handled event; an event counts as handled once the reader asks for the next one. */
    get cursor(): string | null;
    /** The cursor behind everything that has arrived, handled or not. */
    get received(): string | null;
    /** Whether the server reads from a ring (LIVE) or from the disk (RESYNC), as it last reported; null before. */
    get state(): "LIVE" | "RESYNC" | null;
    /** The end of the log, as the server last reported. */
    get head(): string | null;
    /** The oldest cursor that the log keeps, as the server last reported. */
    get oldest(): string | null;
    /** The name of the log. */
    get log(): string | null;
    /** The number of requested events that have not arrived. */
    get demand(): number;
    /** The number of events that have arrived and that the reader has not received yet. */
    get buffered(): number;
    /** Whether all initial entities are handled; never true for a subscription without the state. */
    get ready(): boolean;
    /** Whether a request for it was sent on the current connection. */
    get subscribed(): boolean;
    get paused(): boolean;
    set window(events: number);
    /** Most events requested and not handled; events that are requested already cannot be withdrawn. */
    get window(): number;
    /** Stops requesting. Events that are requested already still arrive. */
    pause(): void;
    /** Requests events again. */
    resume(): void;
    /**
     * Requests rows of the current state, between the changes, which continue; the request survives lost connections. The rows come
     * between two `snapshot` events, whose `detail` is `{what: "begin", snapshot, asked}` and `{what: "end", snapshot}`.
     *
     * @param {{criteria?: Criterion[], after?: string, until?: string}} [which] Selects rows by criteria and by keys: behind `after`,
     *   up to `until`; with keys, `criteria` have to name one entity type. All rows of the subscription by default.
     * @returns {number} The number of the request, from 1, which `asked` repeats.
     */
    refresh(which?: {
        criteria?: Criterion[];
        after?: string;
        until?: string;
    }): number;
    /** @returns {Promise<IteratorResult<ChangeEvent, undefined>>} */
    next(): Promise<IteratorResult<ChangeEvent, undefined>>;
    /** @returns {Promise<IteratorResult<ChangeEvent, undefined>>} */
    return(): Promise<IteratorResult<ChangeEvent, undefined>>;
    /**
     * Handles a message about this subscription; internal, called by the client.
     *
     * @param {"open" | "subscribed" | "acked" | "gap" | "next" | "snapshot_begin" | "chunk_end" | "snapshot_end" | "checkpoint" | "error" | "complete" | "lost" | "over"} what
     * @param {any} message
     */
    tell(what: "open" | "subscribed" | "acked" | "gap" | "next" | "snapshot_begin" | "chunk_end" | "snapshot_end" | "checkpoint" | "error" | "complete" | "lost" | "over", message: any): void;
    [Symbol.asyncIterator](): this;
    #private;
}
/**
 * The subscription of a slot: its changes from its position on. It opens the slot, and its end releases it.
 */
export class SlotChanges extends Changes {
    /**
     * @param {SlotWish} wish
     * @param {any} link
     * @param {SlotPlace} place
     */
    constructor(wish: SlotWish, link: any, place: SlotPlace);
    /** The generation of the opening, as the server last reported; null before. */
    get generation(): number | null;
    /** The cursor of the next event that is not acknowledged, as the server last reported; null before. */
    get acknowledged(): string | null;
    /**
     * Acknowledges an event and everything before it. The acknowledgement is sent at once, or together with those that follow
     * within 0.2 s. An event before one that is already acknowledged is ignored.
     *
     * @param {ChangeEvent} event
     */
    ack(event: ChangeEvent): void;
    /**
     * As `ack`; the promise resolves once the acknowledgement survives a crash of the server, and rejects if it cannot be stored.
     *
     * @param {ChangeEvent} event
     * @returns {Promise<void>}
     */
    ackDurably(event: ChangeEvent): Promise<void>;
    #private;
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
export class Deliveries implements AsyncIterableIterator<Delivery> {
    /**
     * @param {{group: string, consumer: string, log?: string, history?: boolean, integers?: string}} wish
     * @param {{send: (message: object) => void, again: (one: Deliveries) => void, leave: (one: Deliveries, id: string | null) => void, calls: () => number}} link
     * @param {number} [window] Most deliveries requested and not taken by the reader.
     */
    constructor(wish: {
        group: string;
        consumer: string;
        log?: string;
        history?: boolean;
        integers?: string;
    }, link: {
        send: (message: object) => void;
        again: (one: Deliveries) => void;
        leave: (one: Deliveries, id: string | null) => void;
        calls: () => number;
    }, window?: number);
    /** The generation of the joining, as the server last reported; null before. */
    get generation(): number | null;
    /** Whether a request for it was sent on the current connection. */
    get subscribed(): boolean;
    /** @returns {Promise<IteratorResult<Delivery, undefined>>} */
    next(): Promise<IteratorResult<Delivery, undefined>>;
    /** Leaves the group: unacknowledged deliveries are due at once, for every consumer. @returns {Promise<IteratorResult<Delivery, undefined>>} */
    return(): Promise<IteratorResult<Delivery, undefined>>;
    /**
     * Acknowledges deliveries; returns how many were newly acknowledged.
     *
     * @param {Delivery | Delivery[]} deliveries
     * @param {{durable?: boolean, upto?: boolean}} [how] `durable`: the answer waits until the acknowledgement survives a crash;
     * `upto`: everything up to the one delivery is acknowledged.
     * @returns {Promise<number>}
     */
    ack(deliveries: Delivery | Delivery[], { durable, upto }?: {
        durable?: boolean;
        upto?: boolean;
    }): Promise<number>;
    /**
     * Returns deliveries to the group: they are due again, for every consumer. Returns how many were pending.
     *
     * @param {Delivery | Delivery[]} deliveries
     * @param {{delayMs?: number, count?: boolean, error?: string}} [how] `count` is false if the attempt does not count.
     * @returns {Promise<number>}
     */
    nack(deliveries: Delivery | Delivery[], how?: {
        delayMs?: number;
        count?: boolean;
        error?: string;
    }): Promise<number>;
    /**
     * Requests more time. @param {Delivery | Delivery[]} deliveries @returns {Promise<number>}
     */
    inProgress(deliveries: Delivery | Delivery[]): Promise<number>;
    /**
     * Gives up on deliveries: they become dead letters. @param {Delivery | Delivery[]} deliveries @param {string} reason @returns {Promise<number>}
     */
    term(deliveries: Delivery | Delivery[], reason: string): Promise<number>;
    /**
     * Lists the unacknowledged deliveries of the group.
     *
     * @param {{start?: string, consumer?: string, minIdleMs?: number, limit?: number}} [which]
     * @returns {Promise<{total: number, rows: {at: string, consumer: string, generation: number, idleMs: number, count: number}[]}>}
     */
    pending(which?: {
        start?: string;
        consumer?: string;
        minIdleMs?: number;
        limit?: number;
    }): Promise<{
        total: number;
        rows: {
            at: string;
            consumer: string;
            generation: number;
            idleMs: number;
            count: number;
        }[];
    }>;
    /**
     * Takes over deliveries of other consumers. Rejects with CONNECTION_LOST if the outcome is unknown.
     *
     * @param {{at?: string[], start?: string, minIdleMs?: number, limit?: number, onlyIds?: boolean}} [which]
     * @returns {Promise<{deliveries: Delivery[], next: string | null, lost: string[]}>}
     */
    claim(which?: {
        at?: string[];
        start?: string;
        minIdleMs?: number;
        limit?: number;
        onlyIds?: boolean;
    }): Promise<{
        deliveries: Delivery[];
        next: string | null;
        lost: string[];
    }>;
    /**
     * Handles a message about this consumer; internal, called by the client.
     *
     * @param {string} what
     * @param {any} message
     */
    tell(what: string, message: any): void;
    [Symbol.asyncIterator](): this;
    #private;
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
export class LiveMap extends EventTarget implements Iterable<[string, any]> {
    /** @param {() => Changes} subscribe */
    constructor(subscribe: () => Changes);
    /**
     * Resolves once the map shows all entities; rejects if it never will.
     *
     * @type {Promise<this>}
     */
    ready: Promise<this>;
    /** The number of entities. */
    get size(): number;
    /** Whether the map shows all entities and has not had to start over since. */
    get complete(): boolean;
    /** Why the map has ended for good; null before, and after `close`. */
    get error(): Error | null;
    /** The entities as they are now, in a map that never changes; the same one until they change. */
    snapshot: () => ReadonlyMap<string, any>;
    /**
     * Calls a function with the snapshot: now, after each message, and when the map is complete or has ended.
     *
     * @param {(entities: ReadonlyMap<string, any>) => void} run
     * @returns {() => void} A function that ends this.
     */
    subscribe: (run: (entities: ReadonlyMap<string, any>) => void) => () => void;
    /** The cursor behind the last change that the map shows. */
    get cursor(): string | null;
    /** @param {string} key */
    get(key: string): any;
    /** @param {string} key */
    has(key: string): boolean;
    keys(): MapIterator<string>;
    values(): MapIterator<any>;
    entries(): MapIterator<[string, any]>;
    /** Stops following the log; the content stays. */
    close(): void;
    [Symbol.iterator](): MapIterator<[string, any]>;
    #private;
}
/**
 * One change, or the TRANSACTION event at the head of a version.
 */
export type ChangeEvent = {
    /**
     * The cursor behind it: pass it as `since` to resume there.
     */
    cursor: string;
    /**
     * Version of the transaction.
     */
    version: number;
    /**
     * Place in the transaction; 0 is the leading TRANSACTION event.
     */
    index: number;
    /**
     * Changes of the whole transaction, the TRANSACTION event included.
     */
    count: number;
    /**
     * When the transaction was committed.
     */
    timestamp: string;
    /**
     * What part of the system it concerns.
     */
    area: string;
    /**
     * What happened.
     */
    operation: string;
    /**
     * Kind of the entity.
     */
    entity_type?: string | undefined;
    /**
     * Key of the entity.
     */
    key?: string | undefined;
    /**
     * The entity after the change. Only with content BODY.
     */
    body?: any;
    /**
     * The entity before the change. Only with content BODY.
     */
    before?: any;
    /**
     * Names of the fields that changed.
     */
    changed?: string[] | undefined;
    /**
     * Version of the schema in force.
     */
    schema_version?: string | number | undefined;
    /**
     * Version of the entity, for conflict resolution.
     */
    entry_version?: string | number | undefined;
    /**
     * Where the change was first made.
     */
    origin?: string | undefined;
    /**
     * The `meta` of the transaction (index 0) or of the change.
     */
    meta?: any;
    /**
     * When the entity expires, or expired.
     */
    expires_at?: string | undefined;
    /**
     * Of the two halves of a key change, the key of the other.
     */
    linked?: string | undefined;
    /**
     * Path of the one field that a field-level change concerns; none for the entity as a whole.
     */
    field?: string | undefined;
    /**
     * The action of a field-level change on the field.
     */
    action?: string | undefined;
    /**
     * What of this change cannot be rendered, and why; the other fields lack it.
     */
    error?: string | undefined;
    /**
     * The parts that the requested images need and the log lacks. Only with content BODY.
     */
    lacking?: string[] | undefined;
};
/**
 * All given conditions must hold.
 */
export type Criterion = {
    areas?: string[] | undefined;
    entity_types?: string[] | undefined;
    keys?: string[] | undefined;
    key_globs?: string[] | undefined;
    /**
     * Regular expressions that must match the whole key.
     */
    key_patterns?: string[] | undefined;
    operations?: string[] | undefined;
    /**
     * The names of fields.
     */
    changed?: string[] | undefined;
    /**
     * Conditions, all of which must hold.
     */
    where?: {
        path: string;
        compare: string;
        value?: any;
        image?: "AFTER" | "BEFORE";
    }[] | undefined;
    transitions?: ("ENTERED" | "LEFT" | "STAYED" | "MAYBE_LEFT")[] | undefined;
    /**
     * Conditions on the transaction, all of which must hold.
     */
    annotations?: {
        path: string;
        compare: string;
        value?: any;
    }[] | undefined;
};
/**
 * The next version; the oldest kept version; the current entities as events of operation READ, then the next version; the
 * given version; the first version committed at or after a time; or the transaction of an id.
 */
export type Start = "latest" | "earliest" | "state" | {
    version: number;
    index?: number;
} | {
    time: string | Date;
} | {
    transaction: string;
};
/**
 * Missing history, from one cursor to another.
 */
export type Gap = {
    begin: string;
    end: string;
};
export type Wish = {
    /**
     * One of them must hold; everything by default.
     */
    criteria?: Criterion[] | undefined;
    /**
     * Required if the server has several logs.
     */
    log?: string | undefined;
    /**
     * A cursor to start at; replaces `start`.
     */
    since?: string | undefined;
    start?: Start | undefined;
    /**
     * The last version.
     */
    until?: number | undefined;
    content?: "HEADER" | "BODY" | undefined;
    images?: string | undefined;
    /**
     * How integers beyond 2^53 are encoded.
     */
    integers?: "NUMBER" | "TEXT" | undefined;
    /**
     * Most events requested and not handled yet; 256 by default.
     */
    window?: number | undefined;
    /**
     * Most events in one message.
     */
    maxEvents?: number | undefined;
    /**
     * The longest silence until the server sends the cursor.
     */
    heartbeatMs?: number | undefined;
    onLag?: "resync" | "fail" | undefined;
    /**
     * Where history is no longer kept: end with HISTORY_PRUNED, or resume
     * at the oldest position and call this function before the reader gets the first event behind the gap.
     */
    onGap?: "fail" | ((gap: Gap) => any) | undefined;
    /**
     * When rows are delivered. With start "state" they come
     * first, followed by every change ("initial") or by the end ("initial_only"); with "on_gap" they replace history that is no
     * longer kept; with "initial" and "on_gap" they also come whenever `refresh` requests them. By default "initial" with start
     * "state", and "never" otherwise.
     */
    snapshot?: "never" | "initial" | "initial_only" | "on_gap" | undefined;
    /**
     * Whether a start inside a transaction sends it from its beginning.
     */
    whole?: boolean | undefined;
};
/**
 * Options for opening a slot, which has its own criteria and position.
 */
export type SlotWish = {
    /**
     * Whether to take the slot over from its current consumer, whose reading ends with FENCED.
     */
    takeOver?: boolean | undefined;
    /**
     * The owner that other consumers see.
     */
    owner?: string | undefined;
    /**
     * Required if the server has several logs.
     */
    log?: string | undefined;
    content?: "HEADER" | "BODY" | undefined;
    images?: string | undefined;
    /**
     * How integers beyond 2^53 are encoded.
     */
    integers?: "NUMBER" | "TEXT" | undefined;
    /**
     * Most events requested and not handled yet; 256 by default.
     */
    window?: number | undefined;
    /**
     * Most events in one message.
     */
    maxEvents?: number | undefined;
    /**
     * The longest silence until the server sends the cursor.
     */
    heartbeatMs?: number | undefined;
};
/**
 * The arguments of an order on a slot other than opening it.
 */
export type SlotOrder = {
    /**
     * The name of the slot; omitted for "list".
     */
    name?: string | undefined;
    /**
     * Required if the server has several logs.
     */
    log?: string | undefined;
    /**
     * For "create".
     */
    criteria?: Criterion[] | undefined;
    /**
     * For "create" and "seek": a cursor.
     */
    since?: string | undefined;
    /**
     * Likewise: a start position other than a cursor.
     */
    start?: string | object | undefined;
    /**
     * For "create".
     */
    granularity?: "transaction" | "change" | undefined;
    /**
     * For "create": whether the slot delivers nothing until it is resumed.
     */
    paused?: boolean | undefined;
    /**
     * For "create": the slot whose position is copied.
     */
    copyFrom?: string | undefined;
};
export type SlotTold = {
    log: string;
    name: string;
    /**
     * "good" instead of the first two if it is stored.
     */
    state: "free" | "served" | "lost" | "forked" | "good";
    /**
     * The next change that its consumer has not acknowledged.
     */
    cursor: string;
    /**
     * The version of that change.
     */
    version: number;
    /**
     * The generation of the last opening.
     */
    generation: number;
    /**
     * The owner of the current opening.
     */
    owner: string | null;
    paused: boolean;
    lag: {
        versions: number | null;
        changes: number | null;
        bytes: number | null;
        seconds: number | null;
    };
    /**
     * The state of the history that is held for it.
     */
    history: string | null;
    heldBytes: number | null;
    /**
     * The bytes until it exceeds its cap.
     */
    bytesLeft: number | null;
    secondsLeft: number | null;
    /**
     * Whether the server follows the log: the slot as its owner has stored it; what only the owner knows is null.
     */
    stored: boolean;
};
/**
 * The arguments of an order on a group.
 */
export type GroupOrder = {
    /**
     * The name of the group.
     */
    name: string;
    /**
     * Required if the server has several logs.
     */
    log?: string | undefined;
    /**
     * For "create".
     */
    criteria?: Criterion[] | undefined;
    /**
     * For "create" and "reset": a cursor.
     */
    since?: string | undefined;
    /**
     * Likewise: a start position other than a cursor.
     */
    start?: string | object | undefined;
    /**
     * For "create": the options of a group by name, such as `max_deliver`.
     */
    options?: Record<string, any> | undefined;
    /**
     * For "pending" and "dead": most rows, 100 by default, at most 1,000.
     */
    limit?: number | undefined;
    /**
     * For "dead": only letters behind this position.
     */
    after?: string | undefined;
    /**
     * For "release": only deliveries made at least so long ago.
     */
    minIdleMs?: number | undefined;
    /**
     * For "discard": the positions of the letters, at most 1,000; omitted for all letters.
     */
    positions?: string[] | undefined;
};
export type GroupTold = {
    log: string;
    name: string;
    state: "serving" | "paused" | "tripped" | "lost" | "forked";
    /**
     * The first change that is not done.
     */
    cursor: string;
    /**
     * The version of that change.
     */
    version: number;
    /**
     * The last generation of a consumer.
     */
    generation: number;
    /**
     * Whether the order has changed anything.
     */
    changed: boolean;
};
/**
 * A delivery that failed too often, or that a consumer gave up.
 */
export type DeadLetter = {
    /**
     * The position, for "discard".
     */
    position: string;
    /**
     * The cursor of the position.
     */
    cursor: string;
    /**
     * The consumer of the last delivery.
     */
    consumer: string | null;
    /**
     * The number of deliveries.
     */
    count: number;
    first_error: string;
    last_error: string;
    died_at: string;
    changes: Record<string, any>[];
};
export type Schema = {
    log: string;
    entity_type: string;
    version: number;
    /**
     * The cursor from which a subscription begins with the change that recorded the schema.
     */
    told: string;
    /**
     * The parts by name; `entity` describes the entity itself.
     */
    parts: Record<string, any>;
};
/**
 * A change to commit, in the format of `penstock tail`.
 */
export type NewChange = {
    entity_type: string;
    key?: string | undefined;
    /**
     * UPSERT by default.
     */
    operation?: "UPSERT" | "REMOVE" | "TRUNCATE" | "EXPIRE" | "REKEY" | undefined;
    body?: any;
    before?: any;
    changed?: string[] | "auto" | undefined;
    meta?: Record<string, any> | undefined;
    /**
     * For REKEY.
     */
    new_key?: string | undefined;
    expires_at?: string | undefined;
};
export type CommitOptions = {
    /**
     * Required if the server has several logs.
     */
    log?: string | undefined;
    /**
     * For a program that itself repeats unanswered transactions, also after a restart.
     */
    producer?: string | undefined;
    /**
     * Increases with each transaction of the producer.
     */
    sequence?: number | undefined;
    /**
     * A cursor behind which no commit
     * may exist; with keys, no commit of these keys.
     */
    expect?: string | {
        cursor: string;
        keys: {
            entity_type: string;
            key: string;
        }[];
    } | undefined;
    /**
     * The annotations of the transaction.
     */
    meta?: Record<string, any> | undefined;
    /**
     * How far the transaction must have progressed; durable by default.
     */
    wait?: "accepted" | "durable" | "visible" | undefined;
};
export type Commit = {
    /**
     * The version; 0 for a duplicate whose version is no longer known.
     */
    version: number;
    /**
     * The cursor behind it; null if the version is not known.
     */
    cursor: string | null;
    /**
     * Whether it had been committed before.
     */
    duplicate: boolean;
    /**
     * The number of changes, including the TRANSACTION event.
     */
    changes: number;
    /**
     * The time of the commit; null for a duplicate.
     */
    timestamp: string | null;
};
export type Options = {
    /**
     * For servers that require one. A
     * function is called before each connection; a connection whose token has expired is renewed with its next one.
     */
    token?: string | (() => string | null | undefined | Promise<string | null | undefined>) | undefined;
    /**
     * The bounds of the first delay and of any delay, in milliseconds; 250 and 3,000 by default.
     */
    backoff?: {
        first?: number;
        limit?: number;
    } | undefined;
    /**
     * The milliseconds that a function has for a token, and then a server to acknowledge the connection; 6,000 by default.
     */
    openTimeout?: number | undefined;
    /**
     * For environments without a global one, such as that of npm `ws`.
     */
    WebSocket?: (new (url: string, protocol: string) => any) | undefined;
};
/**
 * A delivery to a group consumer.
 */
export type Delivery = {
    /**
     * The cursor that identifies it.
     */
    at: string;
    /**
     * The number of times it was delivered, this time included.
     */
    count: number;
    /**
     * The generation of the consumer.
     */
    generation: number;
    /**
     * The change, or all changes of a transaction.
     */
    events: ChangeEvent[];
};
/**
 * An unanswered call of a group consumer.
 */
export type Call = {
    told: {
        n: number;
        do: string;
        payload: object;
    };
    resolve: (result: any) => void;
    reject: (error: Error) => void;
};
/**
 * A transaction, over all connections.
 */
export type Append = {
    id: string;
    payload: object;
    /**
     * The bytes of its message.
     */
    bytes: number;
    /**
     * Whether it was sent on a connection that was lost before the answer.
     */
    maybe: boolean;
    resolve: (commit: Commit) => void;
    reject: (error: Error) => void;
};
/**
 * Selects entities: all of the type, or those that match all given conditions.
 */
export type LiveWish = {
    keys?: string[] | undefined;
    key_globs?: string[] | undefined;
    key_patterns?: string[] | undefined;
    /**
     * Required if the server has several logs.
     */
    log?: string | undefined;
    integers?: "NUMBER" | "TEXT" | undefined;
    window?: number | undefined;
};
export type MapChange = {
    /**
     * The version of the last change.
     */
    version: number;
    /**
     * The changes, in order; TRUNCATE has no key.
     */
    changes: {
        operation: string;
        key: string | undefined;
        value: any;
    }[];
};
/** The opening of a slot and its acknowledgements, over all connections. */
declare class SlotPlace {
    /**
     * @param {{name: string, takeOver?: boolean, owner?: string}} told
     * @param {(message: object) => void} send
     */
    constructor(told: {
        name: string;
        takeOver?: boolean;
        owner?: string;
    }, send: (message: object) => void);
    /** @type {number | null} */
    generation: number | null;
    /** @type {string | null} */
    cursor: string | null;
    /** The `slot` field of `subscribe`. @returns {{name: string, opening: string, owner?: string, takeOver?: boolean, generation?: number}} */
    wish(): {
        name: string;
        opening: string;
        owner?: string;
        takeOver?: boolean;
        generation?: number;
    };
    /** @param {{id: string, slot: {generation: number, cursor: string}}} message */
    opened({ id, slot }: {
        id: string;
        slot: {
            generation: number;
            cursor: string;
        };
    }): void;
    /**
     * @param {ChangeEvent} event
     * @param {boolean} durable
     * @param {{resolve: () => void, reject: (error: Error) => void}} [waiting]
     */
    acknowledge(event: ChangeEvent, durable: boolean, waiting?: {
        resolve: () => void;
        reject: (error: Error) => void;
    }): void;
    /** Sends the acknowledgement that is due. */
    flush(): void;
    /** @param {{n?: number, cursor: string, error?: {code: string, message: string}}} message */
    acked({ n, cursor, error }: {
        n?: number;
        cursor: string;
        error?: {
            code: string;
            message: string;
        };
    }): void;
    /** The connection is gone; its unanswered acknowledgements will be sent again. */
    lost(): void;
    /** @param {Error | null} why */
    end(why: Error | null): void;
    #private;
}
export {};
