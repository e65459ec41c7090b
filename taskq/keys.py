"""The only place outside the scripts that spells a Redis key.

All keys of a queue share the hash tag ``{queue}``, so that every transition touches one cluster slot.
Everything is plain text that redis-cli shows. Under ``<namespace>:{<queue>}:``

=====================  ======  =============================  ==========================================
key                    type    holds (score)                  goes when
=====================  ======  =============================  ==========================================
job:<ulid>             hash    the job                        trimmed or deleted after it ended
history:<ulid>         list    JSON line per unusual event    with its job
log:<ulid>             list    log lines of the job           with its job
ready:<type>           zset    ulid (age-adjusted priority)   empty
lines                  set     types with waiting jobs        empty
scheduled, retrying    zset    ulid (due, ms)                 empty
blocked                zset    ulid (creation, ms)            empty
later                  zset    type (its last due time, ms)   no delayed job can be of it
processing:<worker>    list    ulids claimed, oldest first    empty
leases                 zset    worker (lease expiry, ms)      reaped or run out over an empty list
holders                hash    worker -> "call count lease"   with the worker's lease
dead                   zset    worker (time of death, ms)     an hour old and list empty
lease:<digest>         hash    who claimed over HTTP, and how  TTL, renewed by signs of life
lease-key:<digest>     string  digest of the lease of a key   TTL
deadlines              zset    worker of a lease (next look)  its lease holds nothing
cancelling             set     running ulids asked to stop    left by every exit from running
succeeded, failed,     zset    ulid (finish, ms)              retention: age, count, bytes
cancelled
stubs:<state>          zset    ulid (finish, ms)              dedup_seconds, dedup_max
expiring               zset    ulid (expiry, ms)              with its job
unique:<key>           string  ulid that holds the key        the job ended
wake:<type>            list    wake tokens, at most 64        TTL, or the line is empty
control:<worker>       list    nudges to beat now             TTL
config                 hash    settings of the queue          never
ticks                  hash    duties (last tick, ms), when   never
                               anybody was seen, silences
totals                 hash    bytes of big ended jobs, how   never
                               many digests are kept
stats:<minute>         hash    counters and histograms        TTL 3 h
stats10:<minute>       hash    ten-minute sums                TTL 48 h
counters               hash    sums of all minutes            never; the types not seen for longest go
events                 stream  transitions while watched      capped at 10,000 entries and 16 MiB; TTL
errors                 zset    fingerprint (last seen, ms)    200 at most, 30 d unseen
error:<fingerprint>    hash    failures of one kind           with its entry, TTL 30 d
bulks                  zset    bulk actions that go on        ended, 20 at most
bulks-ended            zset    bulk action (end, ms)          100 at most
bulk:<id>              hash    a bulk action: wish, progress  TTL 7 d from its end
quarantine             hash    broken item -> reason (JSON)   doctor --drop-quarantine, 1,000 at most
set-aside:<name>       any     a key that doctor put aside    TTL 30 d, doctor --drop-quarantine
=====================  ======  =============================  ==========================================

Outside the queues: ``<namespace>:queues`` (set of names, never deleted), ``<namespace>:worker:<id>``
(hash, TTL: what a worker process tells about itself), ``<namespace>:workers`` (zset, id by last sight, until
it stops or a look finds it gone), ``<namespace>:types`` (hash: job type -> JSON that workers publish),
``<namespace>:schema`` (hash: what it takes to read and write this data), ``<namespace>:keys`` (hash: id ->
JSON of an API key, until revoked),
``<namespace>:keys:used`` (hash: id -> ms of its last use), ``<namespace>:rate:<id>`` (string, TTL: when all
of that key's rate is there again), ``<namespace>:audit`` (stream of what people did, about 10,000 entries).
"""

from dataclasses import dataclass

from taskq.states import State


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """Key names of one queue."""

    namespace: str
    queue: str

    @property
    def prefix(self) -> str:
        return f"{self.namespace}:{{{self.queue}}}:"

    @property
    def config(self) -> str:
        return self.prefix + "config"

    @property
    def ticks(self) -> str:
        return self.prefix + "ticks"

    @property
    def events(self) -> str:
        return self.prefix + "events"

    @property
    def lines(self) -> str:
        return self.prefix + "lines"

    @property
    def holders(self) -> str:
        return self.prefix + "holders"

    @property
    def leases(self) -> str:
        return self.prefix + "leases"

    @property
    def dead(self) -> str:
        return self.prefix + "dead"

    @property
    def deadlines(self) -> str:
        return self.prefix + "deadlines"

    def lease(self, name: str) -> str:
        """The record of a lease over HTTP, by the digest of its id."""
        return f"{self.prefix}lease:{name}"

    @property
    def quarantine(self) -> str:
        return self.prefix + "quarantine"

    @property
    def bulks(self) -> str:
        return self.prefix + "bulks"

    def set_aside(self, name: str) -> str:
        """Where doctor keeps a key that was not what its name says."""
        return f"{self.prefix}set-aside:{name}"

    def job(self, ulid: str) -> str:
        return f"{self.prefix}job:{ulid}"

    def history(self, ulid: str) -> str:
        return f"{self.prefix}history:{ulid}"

    def log(self, ulid: str) -> str:
        return f"{self.prefix}log:{ulid}"

    def ready(self, job_type: str) -> str:
        return f"{self.prefix}ready:{job_type}"

    def processing(self, worker: str) -> str:
        return f"{self.prefix}processing:{worker}"

    def wake(self, job_type: str) -> str:
        return f"{self.prefix}wake:{job_type}"

    def control(self, worker: str) -> str:
        return f"{self.prefix}control:{worker}"

    def state(self, state: State) -> str:
        """The sorted set of a state other than queued and running."""
        return self.prefix + state.value

    def stubs(self, state: State) -> str:
        return f"{self.prefix}stubs:{state.value}"

    def stats(self, minute: int) -> str:
        return f"{self.prefix}stats:{minute}"

    def stats10(self, minute: int) -> str:
        return f"{self.prefix}stats10:{minute}"

    def done_channel(self, ulid: str) -> str:
        """Pub/sub channel on which the end of a watched job is said."""
        return f"{self.prefix}done:{ulid}"


@dataclass(frozen=True, slots=True)
class Keys:
    """Key names of a namespace."""

    namespace: str = "taskq"

    def queue(self, queue: str) -> QueueKeys:
        return QueueKeys(self.namespace, queue)

    @property
    def queues(self) -> str:
        return f"{self.namespace}:queues"

    @property
    def workers(self) -> str:
        return f"{self.namespace}:workers"

    def worker(self, worker: str) -> str:
        return f"{self.namespace}:worker:{worker}"

    @property
    def schema(self) -> str:
        return f"{self.namespace}:schema"

    @property
    def types(self) -> str:
        return f"{self.namespace}:types"

    @property
    def api_keys(self) -> str:
        return f"{self.namespace}:keys"

    @property
    def keys_used(self) -> str:
        return f"{self.namespace}:keys:used"

    def rate(self, key_id: str) -> str:
        return f"{self.namespace}:rate:{key_id}"

    @property
    def audit(self) -> str:
        return f"{self.namespace}:audit"

    def set_aside(self, name: str) -> str:
        return f"{self.namespace}:set-aside:{name}"
