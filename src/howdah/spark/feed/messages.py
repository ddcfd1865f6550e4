"""What the three sides of a feed say to each other.

Control, trainer and controller: msgpack frames of `howdah.wire` over mutual TLS, the trainer dials.

Data, feeder and trainer: one connection a partition, a Unix socket on the same host, mutual TLS
elsewhere. The trainer speaks first (`TrainerLoad`), so the feeder knows that it is let in, and sends
`Begin`. Then an Arrow IPC stream follows, as it is, to its end-of-stream mark. Meanwhile the trainer may send frames (`Stop`, `FeedRefused`); after the last batch has been taken
over it sends `Taken`. While a partition is scored (`Purpose.SCORE`) the trainer's direction carries
`RowsScored` frames, each followed by one Arrow IPC message of so many bytes. A frame is four bytes of
length, big-endian, then msgpack.

Rows are known by (epoch, partition, offset): offset counts the rows of the partition from 0 in the
order Spark gives them.

Tags and fields are those of the first release, also where classes have other names by now: executors may
have another version of Howdah than the driver.
"""

from __future__ import annotations

import enum

import msgspec

Intervals = list[tuple[int, int]]
"""Half-open ranges of offsets, sorted, not touching."""
Part = tuple[int, int]
"""Stage and partition; of rows to train with the stage is 0, however often Spark runs its query."""


class Purpose(enum.Enum):
    """What becomes of a partition's rows."""

    TRAIN = "train"
    SCORE = "score"
    """Each row is answered by one row."""


class Align(enum.Enum):
    """What is done about ranks that have fewer batches than others at an epoch's end."""

    DROP = "drop"
    """All end after as many batches as the poorest rank has."""
    NONE = "none"
    """Each ends with its own rows: for programs that do not wait for each other."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """Rows one rank has trained: what is saved beside a checkpoint."""

    run: int = 0
    """The `Begin.run` it belongs to: of an earlier run nothing is left out of a later one."""
    epoch: int
    """The epoch in progress, from 0."""
    rows: dict[int, Intervals] = {}
    """Of that epoch, by partition."""
    batches: int = 0
    """Trained in that epoch."""
    materialised: int = 0
    """See `Open.materialised`: the offsets of other ones say nothing."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where a trainer takes rows."""

    rank: int
    role: str = "worker"
    index: int = 0
    generation: int = 1
    host: str
    """Name of the host, as `socket.gethostname` gives it: feeders of the same host use `socket`."""
    folder: str = ""
    """Working folder of the executor the trainer was started from: its feeders come here first."""
    socket: str = ""
    """Path of the Unix socket."""
    address: str = ""
    port: int = 0
    """For feeders on other hosts, by mutual TLS."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a feed is handed out; set by `howdah.spark.cluster.Cluster.train`."""

    feed: str
    epochs: int = 1
    align: Align = Align.DROP
    cache: bool = False
    """Keep the first epoch's rows at the trainers (memory, then disk): later ones come from there."""
    cache_memory: int = 1 << 30
    """Bytes per trainer before the cache goes to disk."""
    shuffle: int | None = None
    """Seed: cached epochs after the first are handed out in another order each."""
    exchange: bool = False
    """Each epoch's partitions go to other ranks than those of the epoch before, as far as shares stay
    even."""
    buffer: int = 64 << 20
    """Bytes received and not handed out before a trainer stops reading."""
    spill: int | None = None
    """Bytes that a trainer's files may have, of all its feeds; None: a tenth of what was free on the
    disk is left free."""
    rows: int | None = None
    """Of an epoch, all ranks together; None where Spark would have to count them."""
    steps: int | None = None
    """Batches of an epoch in each rank, as the driver program says."""


class OfRun(msgspec.Struct, frozen=True, kw_only=True):
    """Base of messages about a run."""

    feed: str
    run: int
    """Number of the `Cluster.train` or `inference` call: another run's leftovers are refused."""


class OfEpoch(OfRun, frozen=True, kw_only=True):
    """Base of messages about one of its epochs."""

    epoch: int


class OfTask(OfEpoch, frozen=True, kw_only=True):
    """Base of what a Spark task says of its partition to the controller."""

    partition: int
    stage: int = 0
    attempt: int
    query: int = 0
    """See `howdah.spark.feed.tasks.feeding.FeedTask`."""

    @property
    def part(self) -> Part:
        return self.stage, self.partition


# -- data connection ------------------------------------------------------------------------------


class TrainerLoad(msgspec.Struct, frozen=True, kw_only=True, tag="load"):
    """First word of a trainer on a data connection: it is there."""

    rank: int
    generation: int = 1


class Begin(OfRun, frozen=True, kw_only=True, tag="begin"):
    """First word of a feeder: what comes."""

    epoch: int = 0
    partition: int
    stage: int = 0
    """While rows are scored: Spark's id of the stage. A DataFrame of answers may be used twice at
    once, and each use has every partition."""
    attempt: int = 0
    """Spark's id of the task's attempt (grows over the whole application); a higher one of the same
    partition supersedes lower ones, for ever. One attempt may begin several times, with growing
    ``start``: large partitions are spread over the trainers in segments."""
    purpose: Purpose = Purpose.TRAIN
    start: int = 0
    """Offset of the first row that comes."""
    skip: Intervals = []
    """Rows from ``start`` on that the feeder leaves out (handed out before a checkpoint)."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """This rank takes no more rows of the epoch. The feeder asks the controller for another one; its task
    ends normally where there is none."""

    rows: int = 0
    """Rows of this segment that it has taken; what else comes is thrown away."""


class FeedRefused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The partition is not taken or not answered."""

    reason: str
    again: bool = False
    """Another trainer, or this one a little later, may take it. A feeder that scores has kept what
    was not answered and asks the controller again; other tasks fail, for Spark to run them again."""


class Taken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    """All rows of the partition are the trainer's now."""

    rows: int


class RowsScored(msgspec.Struct, frozen=True, kw_only=True, tag="scored"):
    """The answer to the next record batch; one encapsulated Arrow IPC stream of ``size`` bytes
    follows: as many rows as that batch has."""

    size: int


FromTrainer = TrainerLoad | Stop | FeedRefused | Taken | RowsScored

# -- control connection ---------------------------------------------------------------------------


class TrainerHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A trainer is there; repeated after a lost connection."""

    endpoint: Endpoint = msgspec.field(name="place")
    connection: int = 0
    """Grows with each that the process makes: of two, the controller may read the former's last."""
    positions: dict[str, Position] = {}
    """By feed: what the checkpoint it goes on from had seen (``feed.restore`` sends it again)."""
    checkpoint: bool = False
    """There was something in its checkpoint folder when it began."""
    asks: list[str] = []
    """Feeds the program has asked rows of: for these it will not restore a position any more."""
    readers: dict[str, list[int]] = {}
    """Of these feeds, only those ranks read rows: the program has said so."""


class Available(OfEpoch, frozen=True, kw_only=True, tag="held"):
    """A trainer has rows for so many whole batches of this epoch, handed out or not."""

    batches: int
    rows: int
    """Taken of this epoch."""
    final: bool = False
    """It knows the epoch's end: ``batches`` (with a last short one, if it gives those) is all."""


class HandedOut(OfEpoch, frozen=True, kw_only=True, tag="handed-out"):
    """Progress: rows the program has been given, of this epoch. Sent now and then, and at its end
    (``done``)."""

    rows: int
    batches: int
    done: bool = False
    dropped: int = 0
    """Rows it has taken and will not hand out: known once it takes no more of the epoch."""


class Counted(OfRun, frozen=True, kw_only=True, tag="counted"):
    """The run is over here, and all of its rows have been told by `HandedOut`."""


class Enough(msgspec.Struct, frozen=True, kw_only=True, tag="enough"):
    """The program has called ``feed.stop()``."""

    feed: str


class AwaitingRows(msgspec.Struct, frozen=True, kw_only=True, tag="waits"):
    """The program waits for rows of this feed, and all it was given by runs up to ``run`` is used:
    it is done with what it does between them, such as a validation."""

    feed: str
    run: int
    """-1 if there was none."""


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag="broken"):
    """The training function has raised; its process ends."""

    error: str
    trace: str
    sent: bytes = b""
    """The exception, pickled; empty where it cannot be, or is a large one."""


class OffsetReply(OfEpoch, frozen=True, kw_only=True, tag="kept"):
    """Answer to `OffsetQuery`."""

    partition: int
    upto: int
    """Offset after the last row taken by this trainer; -1 if it has none of this partition."""
    question: int = 0
    """See `OffsetQuery`."""


class Returned(msgspec.Struct, frozen=True, kw_only=True, tag="returned"):
    """The training function has returned: it takes no more rows of any feed."""

    offsets: list[OffsetReply] = msgspec.field(name="kept", default_factory=list)
    """What nobody can ask it any more, of epochs that are still being fed."""


class Open(msgspec.Struct, frozen=True, kw_only=True, tag="open"):
    """A run begins: rows of it may come from now on."""

    run: int
    purpose: Purpose
    options: Options
    first_epoch: int = 0
    cached_epoch: int | None = None
    """With `Options.cache`: the last epoch Spark feeds. Trainers keep it whole and hand out later
    ones from there, telling `Available` (``final``) of each beforehand. None: ``first_epoch``, which is
    right unless that one goes on from a position in its middle."""
    readers: int = 0
    """Ranks that read it."""
    materialised: int = 0
    """How often executors had to compute and keep its rows, so that these stay in their order."""


class EpochFed(OfEpoch, frozen=True, kw_only=True, tag="epoch-fed"):
    """All rows of the epoch are at the trainers."""


class Credit(OfEpoch, frozen=True, kw_only=True, tag="permit"):
    """Every rank can have so many batches of this epoch: up to there they may be handed out."""

    batches: int
    final: bool = False
    """There will be no more: the epoch ends after them."""


class OffsetQuery(OfEpoch, frozen=True, kw_only=True, tag="how-far"):
    """Close the connection of that partition, if one is open, and say what you have of it."""

    partition: int
    attempt: int
    """Who asks: from now on earlier ones are not let in."""
    question: int = 0
    """Grows; the answer names it. Only the newest one's counts, for questions are heard in their order:
    none that was given up can then still close a connection."""


class Close(msgspec.Struct, frozen=True, kw_only=True, tag="close"):
    """The run is over. With ``end`` no run of this feed follows: iteration ends."""

    feed: str
    run: int | None = None
    end: bool = False


class Abort(OfRun, frozen=True, kw_only=True, tag="abort"):
    """The run has failed on Spark's side: raise `howdah.spark.FeedError` in the program."""

    error: str


class Heard(msgspec.Struct, frozen=True, kw_only=True, tag="heard"):
    """`Returned` or `Broken` has come: the process may end. It says it again until then."""


FromControl = (
    TrainerHello
    | Available
    | HandedOut
    | Counted
    | Enough
    | AwaitingRows
    | Broken
    | Returned
    | OffsetReply
)
ToTrainer = Open | EpochFed | Credit | OffsetQuery | Close | Abort | Heard

# -- feeder and controller (feeders dial it as `howdah.wire.tls.PeerRole.FEEDER`) -----------------------


class AssignmentRequest(OfTask, frozen=True, kw_only=True, tag="again"):
    """First word of every task of a feed, and again after each segment of a partition: where and
    with whom do I go on? The controller knows whether an earlier attempt had the partition (`OffsetQuery`);
    Spark's own attempt numbers begin again when a stage is repeated."""

    host: str = ""
    folder: str = ""
    """Of the executor: trainers of the same host, then of others, in order of their load."""
    unreachable: list[int] = []
    """Ranks that could not be reached, or did not take it."""
    enough: list[int] = []
    """Ranks that have said that they take no more of this epoch."""
    rank: int = -1
    """Who took the segment that was just sent; -1 at a task's beginning."""
    rows: int = 0
    """Of that segment. Less than none if some that were counted before turn out not to be taken."""
    dropped: Intervals = []
    """Rows that ``rank`` was sent and has thrown away. A later attempt may send them again."""
    offset: int = 0
    """Of the row that the task sends next; at its beginning ``start`` of the answer counts."""
    lost: bool = False
    """The connection to a trainer broke: how far did the partition come? ``offset`` is that of the first
    row that was sent over it."""
    first: int | None = None
    """At its beginning: a hash of the partition's first row, 0 if it has none. None: the partitions are
    known to be those of the queries before."""
    leaves_out: int = 0
    """Offset after the last row that programs have had and the task leaves out."""


class AssignmentResponse(msgspec.Struct, frozen=True, kw_only=True, tag="go-on"):
    """Feed from offset ``start`` on, to one of ``endpoints``, in this order of preference."""

    start: int
    endpoints: list[Endpoint] = msgspec.field(name="places", default_factory=list)
    trainers: int = 1
    """How many take rows of this feed in all."""
    whole: bool = False
    """The partition has been taken, or no more is wanted: end normally."""
    wait_s: float = 0.0
    """Nobody can take it now: ask again after that long."""
    asked: bool = False
    """Trainers were asked how far the partition came: ``start`` is what they said."""
    length: int = -1
    """Rows of the partition, from which some are left out; -1 if no query has told it."""
    problem: str = ""
    """It will never be taken; the task fails with this."""


class Fed(OfTask, frozen=True, kw_only=True, tag="fed"):
    """A feeder has brought a partition to its end. Nothing is answered."""

    rank: int = -1
    rows: int = 0
    """Of the last segment, which ``rank`` took."""
    length: int = -1
    """Rows of the whole partition; -1: see `AssignmentRequest.first`."""


FromFeederControl = AssignmentRequest | Fed
