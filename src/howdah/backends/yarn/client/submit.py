"""Submitting a job to YARN: see `howdah.backends.base.Submission`.

What can be done at the same time is: from the first moment a thread asks the ResourceManager for an
application id and what the cluster is like; once the job is known and can run there, threads pack
while others make the job directory on HDFS and get tokens. Until the application is handed over,
a failure removes the directory again; only archives in the cache stay. From then on it does so too, if YARN says
that the application has ended.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from howdah.backends.base import (
    BackendError,
    PerhapsSubmitted,
    Step,
    SubmissionCancelled,
    role_resources,
)
from howdah.backends.yarn import launch_context, secretfile, token_providers
from howdah.backends.yarn.access import POLICY, Access, shared, use_keytab
from howdah.backends.yarn.client import application, checks, cluster_report, staging
from howdah.backends.yarn.client.cluster import YarnCluster, listed
from howdah.backends.yarn.local_resources import (
    FILE,
    KEYTAB,
    LocalResource,
    LocalResources,
    ResourceKind,
    Visibility,
)
from howdah.backends.yarn.master import renewal
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import AccessControl, ApplicationNotFound, HadoopError, RemoteError
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.namenode import NameNode, by_authority, token_of
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager, SubmissionFailed
from howdah.hadoop.security import kms
from howdah.hadoop.security.credentials import (
    AMRM_TOKEN,
    HDFS_TOKEN,
    NM_TOKEN,
    RM_TOKEN,
    Credentials,
    Token,
)
from howdah.hadoop.security.login import Login
from howdah.hadoop.security.providers import TokenRequest
from howdah.hadoop.security.tokens import identifier
from howdah.packing.archives import Archive, PackingError
from howdah.packing.store import ArchiveStore, Uploaded
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.storage.copies.mirror import Mirror
from howdah.storage.files import write_atomically
from howdah.storage.hdfs import split
from howdah.storage.hdfs.errors import NoNameNode
from howdah.storage.jobdir import JobDirectory, base_folder

if TYPE_CHECKING:
    from howdah.storage.hdfs.files import Hdfs

ACCEPTED_S = 60.0
"""The ResourceManager takes a job in within this, or has lost it."""
LOOK_S = 0.1
"""How soon a submission that waits sees that it was cancelled."""
_THREADS = 12
_ALWAYS_TOKENS = "dfs.namenode.delegation.token.always-use"

T = TypeVar("T")


class _Reached(NamedTuple):
    """A cluster that answered."""

    access: Access
    application: ApplicationId
    cluster: YarnCluster


class YarnSubmission:
    """One new job for a YARN cluster."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="howdah-submit")
        self._cancelled = threading.Event()
        self._telling = threading.Lock()
        self._progress: Callable[[Step], None] = lambda step: None
        self._packing: staging.Packing | None = None
        self._job: Job | None = None
        self._doubts: list[str] = []
        """Why YARN may not take it into the queue that it asks for."""
        self._unheeded: list[str] = []
        self._tokens_of_others: dict[str, Token] = {}
        self._folder: str | None = None
        self._keytab: Path | None = None
        self._reaching: Future[_Reached] = self._pool.submit(self._reach, None)

    # -- the contract --------------------------------------------------------------------------

    def base(self, job: Job) -> Path:
        """The usual folder: what is made there is only a copy, wherever the store is."""
        return base_folder(None)

    def check(self, job: Job, loaded: LoadedJob) -> None:
        """See `howdah.backends.base.Submission.check`. What it takes begins to be packed."""
        self._job = job
        if job.hadoop.keytab is not None:
            keytab = Path(loaded.folder, job.hadoop.keytab).expanduser().resolve()
            # No thread may be in the Kerberos library, which reads the environment, while that changes.
            with contextlib.suppress(BackendError):
                self._result(self._reaching)
            use_keytab(str(keytab), job.hadoop.principal or "")
            self._keytab = keytab
        if self._keytab or (job.hadoop.conf is not None and job.hadoop.conf != self._folder):
            self._folder = job.hadoop.conf
            self._reaching = self._pool.submit(self._reach, job.hadoop.conf)
        reached = self._result(self._reaching)
        configuration = reached.access.configuration
        base = staging.base_url(job.store, configuration, reached.access.user)
        if configuration.security_enabled:
            places = {"store": base, **staging.written(job, configuration)}
            _refuse_encryption_zones(reached.access, places)
        found = checks.problems(job, role_resources(job), reached.cluster)
        self._doubts = checks.unusable(job, reached.cluster)
        if not found and (asked := checks.asked_for(job, reached.cluster)) is not None:
            self._doubts += checks.problems(job, role_resources(job), reached.cluster, asked)
        providers = token_providers.find(job.hadoop.tokens)
        self._unheeded = checks.by_configuration(job, configuration)
        if found:
            raise BackendError(
                f"This cluster can never run the job:{_lines([*found, *self._doubts])}"
            )
        self._packing = staging.Packing(
            job,
            loaded,
            configuration,
            self._pool,
            self._tell_packing,
        )
        if providers:
            asking = self._pool.submit(
                token_providers.collect,
                providers,
                job.hadoop.tokens,
                reached.access,
                _renewer(configuration, reached.access.user),
            )
            self._tokens_of_others = self._result(asking)

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        self._progress = progress
        reached = self._result(self._reaching)
        access, job = reached.access, directory.job()
        url = self._note_place(directory, reached, job)
        hdfs = access.hdfs(url)
        if self._doubts and job.queue:
            self._tell(
                Step(
                    what="submitting",
                    note=f"unless the cluster's own rules put the job into another queue than {job.queue!r}, "
                    f"it cannot run:{_lines(self._doubts)}",
                )
            )
        tokens: list[tuple[str, Token]] = []
        handed_over = False
        beside: list[Future[Any]] = []
        try:
            making = self._pool.submit(Mirror(url, directory.path, hdfs).create)
            minting = self._pool.submit(self._tokens, access, url, job, tokens)
            shipping = self._pool.submit(self._ship, access, url, reached.application)
            beside += [making, minting, shipping]
            local_resources = self._result(shipping)
            self._result(making)
            if self._keytab is not None and access.login.keytab:
                local_resources = self._ship_keytab(access, url, self._keytab, local_resources)
            document = staging.as_json(local_resources)
            write_atomically(directory.path / FILE, document)
            hdfs.write_new(f"{url}/{FILE}", document)
            credentials = Credentials(
                dict(self._result(minting)) | self._tokens_of_others,
                secretfile.of_folder(directory.secrets),
            )
            master = launch_context.master(local_resources, url, credentials, job.acl)
            submission = application.submission(
                job, directory.job_id, url, reached.application, master
            )
            if lost := [tag for tag in job.tags if tag not in submission.applicationTags]:
                note = f"these tags are not the application's: {listed(lost)}; YARN takes {application.LIMITS}"
                self._tell(Step(what="submitting", note=note))
            # Tokens that were given to us are others' too.
            submission.cancel_tokens_when_complete = not access.login.credentials.tokens
            self._stop_if_cancelled()
            self._say_how_long(access, credentials)
            handed_over = True
            queue = self._hand_over(reached, submission)
            meta = directory.meta()
            directory.write_meta(msgspec.structs.replace(meta, submitter=None, queue=queue))
        except BaseException as error:
            self._cancelled.set()
            wait(beside)  # what they made after the removal would stay
            if self._packing is not None:
                self._packing.wait()  # a command that ends meanwhile leaves half an archive
            if handed_over and not self._is_ended(reached.access, reached.application, error):
                meta = msgspec.structs.replace(directory.meta(), submitter=None)
                directory.write_meta(meta)
                raise PerhapsSubmitted(
                    f"{str(error) or 'Interrupted'}. Whether YARN has taken the job, as {meta.application_id},"
                    f" is not known: 'howdah status {meta.job_id}' tells as soon as YARN answers, and"
                    f" 'howdah stop {meta.job_id}' ends it"
                ) from error
            # For HDFS that has not answered all the time nobody waits as long again.
            ended = [each for each in beside if not each.cancelled()]
            away = any(isinstance(each.exception(), NoNameNode) for each in ended)
            files = hdfs.patient(0.0) if away else hdfs
            self._take_back(reached.access, files, url, [token for _, token in tokens])
            if isinstance(error, (PackingError, OSError)):
                raise BackendError(f"The job was not submitted: {error}") from error
            raise
        finally:
            self._progress = lambda step: None

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._cancelled.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- the cluster ---------------------------------------------------------------------------

    def _reach(self, folder: str | None) -> _Reached:
        access = shared(folder)

        async def look() -> tuple[ApplicationId, YarnCluster]:
            new = await access.manager.new_application()
            return new.id, await cluster_report.cluster(access.manager, access.user, new.maximum)

        try:
            found = access.call(look())
        except HadoopError as error:
            raise access.in_words(error) from error
        return _Reached(access, *found)

    def _tokens(
        self, access: Access, url: str, job: Job, minted: list[tuple[str, Token]]
    ) -> list[tuple[str, Token]]:
        """Delegation tokens of every file system the job's containers use, with Kerberos of the
        ResourceManager and the KMS too; none where they are not needed. What the login has already is passed on.
        ``minted`` has the others, also if a later one fails."""
        configuration, login = access.configuration, access.login
        given = [
            (alias, token)
            for alias, token in login.credentials.tokens.items()
            if token.kind not in (AMRM_TOKEN, NM_TOKEN)  # another application's
        ]
        if not (configuration.security_enabled or configuration.boolean(_ALWAYS_TOKENS)):
            return given
        renewer = _renewer(configuration, access.user)
        file_systems = staging.file_systems(job, url, configuration)
        further: list[tuple[str, Token]] = []
        for place in file_systems:
            token = token_of(configuration, login, place)
            if token is None:
                token = access.call(_mint(configuration, login, place, renewer))
                minted.append((token.service, token))
            further.append(((named := by_authority(configuration, token, place)).service, named))
        if login.kerberos and login.token(RM_TOKEN) is None:
            token = access.call(access.manager.delegation_token(renewer))
            minted.append((token.service, token))
        return [*further, *given, *minted, *self._of_kms(access, renewer, file_systems)]

    def _of_kms(
        self, access: Access, renewer: str, file_systems: Sequence[str]
    ) -> list[tuple[str, Token]]:
        """The tokens that open these file systems' encryption zones. A job may do without."""
        if not access.login.kerberos:
            return []
        request = TokenRequest(access.login, access.configuration, renewer, {})
        try:
            providers = [
                access.call(_key_provider(access.configuration, access.login, each))
                for each in file_systems
            ]
            return [*kms.tokens(request, providers).items()]
        except HadoopError as error:
            note = f"programs can't read encryption zones, as there is no token of the KMS: {error}"
            self._tell(Step(what="submitting", note=note))
            return []

    def _hand_over(
        self, reached: _Reached, submission: yarn.ApplicationSubmissionContextProto
    ) -> str:
        """The queue that it is in."""
        access = reached.access
        self._tell(Step(what="submitting"))
        doubts = _lines(self._doubts)
        try:
            report = access.call(access.manager.submit_and_wait(submission, timeout_s=ACCEPTED_S))
        except SubmissionFailed as error:
            raise BackendError(f"YARN did not take the job: {error}{doubts}") from error
        except HadoopError as error:
            raise BackendError(f"YARN refuses the job: {error}{doubts}") from error
        except BackendError as error:
            if not isinstance(error.__cause__, AccessControl):
                raise
            raise BackendError(f"YARN refuses the job: {error.__cause__}{doubts}") from error
        self._check_in_its_queue(reached, report.queue)
        if self._unheeded:
            note = f"the cluster does not heed all of the job:{_lines(self._unheeded)}"
            self._tell(Step(what="submitting", note=note))
        return report.queue

    def _check_in_its_queue(self, reached: _Reached, name: str) -> None:
        """What cannot be known before YARN has put the job into a queue: see `howdah.backends.yarn.client.checks`."""
        access, job = reached.access, self._job
        assert job is not None
        try:
            queue = access.call(cluster_report.queue_of(access.manager, name))
        except (HadoopError, BackendError):
            return  # it is taken, and YARN will tell
        roles = role_resources(job)
        if queue is not None and (found := checks.problems(job, roles, reached.cluster, queue)):
            raise BackendError(
                f"This cluster can never run the job in the queue {queue.name!r}, which YARN has put it "
                f"into:{_lines(found)}"
            )
        if elsewhere := checks.elsewhere(job, name):
            self._unheeded.append(elsewhere)
        if doubts := checks.warnings(job, roles, reached.cluster, queue):
            note = f"YARN has taken the job, but it may not run:{_lines(doubts)}"
            self._tell(Step(what="submitting", note=note))

    # -- what is shipped -----------------------------------------------------------------------

    def _ship(self, access: Access, url: str, application_id: ApplicationId) -> LocalResources:
        assert self._packing is not None
        configuration = access.configuration
        home = staging.cache_home(url, configuration, access.user)
        store = ArchiveStore(
            access.hdfs,
            home,
            partial(staging.whole, configuration=configuration),
            user=access.user,
        )
        uploads: dict[str, Uploaded] = {}

        def upload(archive: Archive) -> Uploaded:
            self._stop_if_cancelled()
            if archive.name not in uploads or archive.url is not None:
                uploads[archive.name] = store.ensure(archive, self._tell_packing)
            return uploads[archive.name]

        shipped = self._packing.ship(
            upload, store.inside, self._result, str(application_id), access.user
        )
        assert self._job is not None
        if slow := staging.slow_runtime(self._job, store.head, self._packing.base(self._result)):
            self._tell(Step(what="submitting", note=slow))
        return shipped

    def _ship_keytab(
        self, access: Access, url: str, keytab: Path, local_resources: LocalResources
    ) -> LocalResources:
        """Put the keytab into the job's directory, for its master alone."""
        place = f"{url}/{KEYTAB}"
        hdfs = access.hdfs(url)
        hdfs.write_new(place, keytab.read_bytes())
        there = hdfs.stat(place)
        shipped = LocalResource(
            name=KEYTAB,
            url=place,
            size=there.size,
            mtime_ms=there.mtime_ms,
            kind=ResourceKind.FILE,
            visibility=Visibility.APPLICATION,
        )
        principal = access.login.principal
        return msgspec.structs.replace(local_resources, keytab=shipped, principal=principal)

    def _say_how_long(self, access: Access, credentials: Credentials) -> None:
        if not access.configuration.security_enabled:
            return
        if access.login.keytab:
            if self._tokens_of_others:
                names = listed(token.kind for token in self._tokens_of_others.values())
                note = f"tokens that end are got anew, but not those of other services: {names}"
                self._tell(Step(what="submitting", note=note))
            return
        ends = [identifier(token).ends_at for token in credentials.of_kind(HDFS_TOKEN)]
        if ends:
            until = min(ends).astimezone()
            self._tell(
                Step(
                    what="submitting",
                    note=f"the job can use HDFS until {until:%Y-%m-%d %H:%M}, when its delegation tokens end;"
                    " with `keytab` under [hadoop] it could for as long as it runs",
                )
            )

    def _note_place(self, directory: JobDirectory, reached: _Reached, job: Job) -> str:
        """Write down where the job really is; the URL of its directory."""
        access = reached.access
        base = staging.base_url(job.store, access.configuration, access.user)
        url = f"{base}/{directory.job_id}"
        meta = msgspec.structs.replace(
            directory.meta(),
            user=access.user,
            url=url,
            application_id=str(reached.application),
            hadoop_conf=access.folder,
        )
        directory.write_meta(meta)
        return url

    # -- taking back ---------------------------------------------------------------------------

    def _is_ended(self, access: Access, application: ApplicationId, error: BaseException) -> bool:
        """Whether YARN certainly does not run it, after a submission that failed so."""
        if isinstance(error.__cause__, SubmissionFailed):
            return True
        try:
            access.call(
                access.manager.kill_application(application, "its submission was taken back")
            )
        except ApplicationNotFound:
            return True
        except (HadoopError, BackendError):
            return False
        return True

    def _take_back(self, access: Access, files: Hdfs, url: str, tokens: list[Token]) -> None:
        """Leave nothing of the job there."""
        with contextlib.suppress(OSError):
            files.remove(url, recursive=True)
        for token in tokens:
            with contextlib.suppress(HadoopError, BackendError):
                access.call(_cancel(access.configuration, access.login, token))

    def _result(self, future: Future[T]) -> T:
        """What it gives; a cancelled submission does not wait for it."""
        while not future.done():
            self._stop_if_cancelled()
            wait((future,), timeout=LOOK_S)
        return future.result()

    def _stop_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise SubmissionCancelled("nothing was submitted")

    def _tell_packing(self, what: str, done: int, total: int | None) -> None:
        self._stop_if_cancelled()
        self._tell(Step(what=what, done=done, total=total))

    def _tell(self, step: Step) -> None:
        with self._telling:
            self._progress(step)


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"\n  {text}" for text in texts)


def _refuse_encryption_zones(access: Access, places: Mapping[str, str]) -> None:
    """A job's master and agents have tokens, and hdfs-native opens a zone with a ticket only: without this
    the job would fail at its first write, long after it was submitted. ``places`` are URLs by the key of the
    job file that says where they are."""
    for key, url in places.items():
        path = split(url)[1]
        try:
            zone = access.call(_zone(access.configuration, access.login, url, path))
        except RemoteError:  # it may not be looked at: what is done there will tell
            continue
        if zone is None:
            continue
        what = f"Job directories would be in {url}" if key == "store" else f"{key} is {url}"
        where = " or the site file" if key == "store" else ""
        raise BackendError(
            f"{what}, which is in the encryption zone {zone}: on a cluster with "
            "Kerberos a running job can't write there, for it has no ticket for the Key Management "
            f"Server. Name a folder outside of any zone with `{key}` in the job file{where}"
        )


async def _zone(configuration: Configuration, login: Login, url: str, path: str) -> str | None:
    async with NameNode(configuration, login, url=url, retry=POLICY) as name_node:
        return await name_node.encryption_zone(path)


async def _key_provider(configuration: Configuration, login: Login, url: str) -> str:
    async with NameNode(configuration, login, url=url, retry=POLICY) as name_node:
        return kms.provider(configuration, await name_node.key_provider())


async def _mint(configuration: Configuration, login: Login, url: str, renewer: str) -> Token:
    async with NameNode(configuration, login, url=url, retry=POLICY) as name_node:
        return await name_node.delegation_token(renewer)


async def _cancel(configuration: Configuration, login: Login, token: Token) -> None:
    if token.kind == RM_TOKEN:
        async with ResourceManager(configuration, login, retry=POLICY) as manager:
            await manager.cancel_token(token)
        return
    url = renewal.url(token.service)
    async with NameNode(configuration, login, url=url, retry=POLICY) as name_node:
        await name_node.cancel_token(token)


def _renewer(configuration: Configuration, user: str) -> str:
    """With security the ResourceManager, which renews them and insists on it; else ourselves.

    By its whole principal: the NameNode knows it by the short name that its own rules give it. Of two
    ResourceManagers the first one's, as Hadoop's own clients have it: the short name is that of both.
    """
    principal = configuration.get("yarn.resourcemanager.principal")
    if configuration.security_enabled and principal:
        return principal.replace("_HOST", configuration.rm_addresses("client")[0].host.lower())
    return user
