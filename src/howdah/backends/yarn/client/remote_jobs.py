"""Jobs on YARN that another machine has submitted: found by application or job id, and copied here."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from howdah.backends.base import BackendError, OnlyOwners
from howdah.backends.yarn.access import Access, folder_of_site, of_site, shared
from howdah.backends.yarn.client import application, site, staging
from howdah.hadoop.errors import ApplicationNotFound, HadoopError
from howdah.hadoop.ids import ApplicationId
from howdah.hadoop.protos import yarn
from howdah.hadoop.security.login import USER
from howdah.storage import jobdir, layout
from howdah.storage.copies import local_copy
from howdah.storage.copies.mirror import Mirror
from howdah.storage.hdfs.errors import NoPermission, NotFound
from howdah.storage.jobdir import (
    JobDirectory,
    NoSuchJob,
    base_folder,
    list_jobs,
    name_of,
    order,
)
from howdah.storage.layout import JobMeta
from howdah.wire.decoders import document_decoder

VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME")
"""One of them is set where there is a cluster to look at, unless the site file names it."""
_APPLICATION = re.compile(r"application_\d+_\d+")


def find(
    wanted: str, store: str | None, env: Mapping[str, str] = os.environ
) -> JobDirectory | None:
    """The job of that application id, job id, name or beginning of a job id; None if that is none of ours.

    It gets a directory here, a copy of what is on HDFS, unless it has one.

    Raises:
        NoSuchJob: the cluster has none, or several (`NoSuchJob.several`).
        BackendError: the cluster cannot be asked.
    """
    if _APPLICATION.fullmatch(wanted):
        known = _known(wanted)
        return known or _by_application(shared(folder_of_site(env), env), wanted, store)
    is_url = store is not None and "://" in store.removeprefix("file://")
    folder = folder_of_site(env)
    if not is_url and folder is None and not any(env.get(name) for name in VARIABLES):
        return None
    access = shared(folder, env)
    found = _called(wanted, _in_store(access, store, env))
    if not found and store is None:
        found = _called(wanted, _of_applications(access))
    if len(found) > 1:
        several = _answering(access, found)
        if len(several) > 1:
            raise jobdir.ambiguous(wanted, several)
        if several:
            return several[0]
    for url in found.values():
        return adopt(access, url)
    return None if name_of(wanted) == wanted else _of_others(access, wanted, store)


def _called(wanted: str, urls: Mapping[str, str]) -> dict[str, str]:
    """Of those jobs the ones that answer to that."""
    found = jobdir.answering(urls, wanted)
    return {each: url for each, url in urls.items() if each in found}


def end(called: str, reason: str, env: Mapping[str, str] = os.environ) -> None:
    """Have YARN end that application of another user's at once.

    Raises:
        BackendError: it does not, or not for this user.
    """
    access = shared(folder_of_site(env), env)
    site.end(access, ApplicationId.parse(called), called, reason or f"stopped by {access.user}")


def jobs(
    store: str | None,
    limit: int,
    left_out: Callable[[str], None],
    env: Mapping[str, str] = os.environ,
) -> list[JobDirectory]:
    """The user's jobs on the cluster, newest first, each with a directory here.

    Without a store those in the usual ones, and wherever else YARN's applications of the user are.
    ``left_out`` is told of what cannot be read.

    Raises:
        BackendError: the cluster cannot be asked.
    """
    access = shared(folder_of_site(env), env)
    urls = _of_applications(access, left_out) if store is None else {}
    urls |= _in_store(access, store, env)
    found: list[JobDirectory] = []
    for job_id in sorted(urls, key=order, reverse=True):
        if len(found) == limit:
            break
        try:
            found.append(adopt(access, urls[job_id]))
        except NoSuchJob:  # removed, or being made
            continue
        except BackendError as error:
            left_out(str(error))
    return found


def ids(store: str, env: Mapping[str, str] = os.environ) -> list[str]:
    """Ids of the user's jobs there, newest first. Nothing is copied.

    Raises:
        BackendError: the cluster cannot be asked.
    """
    return sorted(_in_store(shared(folder_of_site(env), env), store, env), key=order, reverse=True)


def last(store: str | None, env: Mapping[str, str] = os.environ) -> JobDirectory | None:
    """The user's job on the cluster that was submitted last, with a directory here; None if there are none.

    Raises:
        BackendError: the cluster cannot be asked, or the job cannot be read.
    """
    access = shared(folder_of_site(env), env)
    urls = _in_store(access, store, env)
    found: list[JobDirectory] = []
    for job_id in sorted(urls, key=order, reverse=True):
        if found and not _same_second(job_id, found[0].job_id):
            break
        with contextlib.suppress(NoSuchJob):  # being removed, or being made
            found.append(adopt(access, urls[job_id]))
    return max(found, key=JobDirectory.submitted, default=None)


def _answering(access: Access, urls: Mapping[str, str]) -> list[JobDirectory]:
    """Those jobs, newest first. The newest and those that may not have ended have a
    directory here; each of the others would have to be copied, for nothing.

    Raises:
        BackendError: one cannot be read: it may be the one that is meant.
    """
    found: list[JobDirectory] = []
    for job_id in sorted(urls, key=order, reverse=True):
        url = urls[job_id]
        if found and not _same_second(job_id, found[0].job_id):
            try:
                has_ended = access.hdfs(url).exists(f"{url}/{layout.FINAL}")
            except OSError as error:
                raise BackendError(f"{url} cannot be read: {error}") from error
            if has_ended:
                found.append(JobDirectory(Path(base_folder(None)) / job_id))
                continue
        with contextlib.suppress(NoSuchJob):  # being removed, or being made
            found.append(adopt(access, url))
    return found


def _same_second(job_id: str, other: str) -> bool:
    """Whether the ids do not tell which job is the newer one."""
    return order(job_id)[0] == order(other)[0]


def adopt(access: Access, url: str, called: str = "") -> JobDirectory:
    """The local copy of the job directory at that URL; made if there is none, or if it is damaged. ``called`` is
    its application.

    Raises:
        OnlyOwners: it is another user's, and closed to us.
        NoSuchJob: there is no such job directory, or it is being made.
        BackendError: it cannot be read.
        NotYours: the local copy, or the folder of jobs here, may be somebody else's.
    """
    local = Path(base_folder(None)) / url.rstrip("/").rpartition("/")[2]
    directory = JobDirectory(local)
    jobdir.check_folder_of_jobs(local.parent)
    if (local / layout.META).exists() and jobdir.own(directory).is_whole:
        return directory
    try:
        hdfs = access.hdfs(url)
        owner = hdfs.stat(url).owner
        if not hdfs.exists(f"{url}/{layout.META}"):
            raise NoSuchJob(
                f"{url} has no {layout.META}: its job is being submitted, or its submission was broken "
                "off; what that left is removed with `hdfs dfs -rm -r`"
            )
        # Who asks for the end is given the whole story with it (`YarnSite.final`).
        Mirror(url, local, hdfs).fetch(but=(layout.META, layout.FINAL))
        meta = document_decoder(JobMeta)(hdfs.read(f"{url}/{layout.META}"))
        (local / layout.FINAL).unlink(missing_ok=True)  # a damaged one
    except NotFound as error:
        raise NoSuchJob(f"There is no job directory at {url}") from error
    except NoPermission as error:
        raise OnlyOwners(
            f"{url} can only be read by its owner, which {access.user} is not. With a right to see the "
            "job ([acl] view, view-groups) its page is open to you through YARN's list of applications. With "
            f"one to change it ([acl] modify, modify-groups) `howdah stop --now {called or 'APPLICATION'}` "
            "ends it at once, without its last checkpoint; only its owner can have it save that first",
            called,
        ) from error
    except (OSError, msgspec.DecodeError) as error:
        raise BackendError(f"{url} cannot be read: {error}") from error
    # Last: a copy that has it is taken for a whole one.
    owner = None if _is(access.user, owner) else owner
    directory.write_meta(msgspec.structs.replace(meta, hadoop_conf=access.folder, owner=owner))
    return directory


def _is(user: str, owner: str) -> bool:
    """Whether HDFS's name is the user's."""
    return _short(user) == owner


def _short(user: str) -> str:
    """The name that services know the user by: of a Kerberos principal the first part."""
    return re.split("[/@]", user)[0]


def _known(wanted: str) -> JobDirectory | None:
    """The job of that application among those that have a directory here."""
    for directory in list_jobs(base_folder(None)):
        with contextlib.suppress(Exception):  # a damaged one is not the one that is looked for
            if directory.meta().application_id == wanted:
                return directory
    return None


def _by_application(access: Access, wanted: str, store: str | None) -> JobDirectory:
    try:
        report = access.call(access.manager.application_report(ApplicationId.parse(wanted)))
    except ApplicationNotFound as error:
        raise NoSuchJob(
            f"The ResourceManager does not know {wanted} (any more). A job's directory stays: give "
            "its job id; 'howdah list --backend yarn' shows all"
        ) from error
    except HadoopError as error:
        raise access.in_words(error) from error
    job_id, url = application.job_of(report.applicationTags)
    if job_id is None:
        raise NoSuchJob(
            f"{wanted} ({report.name!r} of {report.user}) is no job of Howdah's: its type is "
            f"{report.applicationType}"
        )
    if url is None:
        url = f"{staging.base_url(store, access.configuration, report.user)}/{job_id}"
    return adopt(access, url, wanted)


def _of_others(access: Access, job_id: str, store: str | None) -> JobDirectory | None:
    """Another user's job, by its whole id: YARN has it as a tag."""
    tagged = yarn.GetApplicationsRequestProto(applicationTags=[f"{application.JOB_TAG}{job_id}"])
    try:
        reports = access.call(access.manager.applications(tagged))
    except HadoopError as error:
        raise access.in_words(error) from error
    if not reports:
        return None
    return _by_application(access, str(ApplicationId.from_proto(reports[0].applicationId)), store)


def _of_applications(
    access: Access, left_out: Callable[[str], None] = lambda words: None
) -> dict[str, str]:
    """URLs of the user's job directories that YARN's applications name, by job id."""
    own = yarn.GetApplicationsRequestProto(
        application_types=[application.TYPE], users=[_short(access.user)]
    )
    try:
        reports = access.call(access.manager.applications(own))
    except (HadoopError, BackendError) as error:
        left_out(
            f"jobs in other stores than the usual ones, as YARN does not tell of them: {error}"
        )
        return {}
    found = (application.job_of(report.applicationTags) for report in reports)
    return {job_id: url for job_id, url in found if job_id is not None and url is not None}


def _in_store(access: Access, store: str | None, env: Mapping[str, str]) -> dict[str, str]:
    """URLs of the user's job directories there, by job id; without a store those in the site file's and
    in the user's home.

    Raises:
        BackendError: it is no store, or cannot be listed.
    """

    def base(store: str | None) -> str:
        return staging.base_url(store, access.configuration, access.user)

    if store is not None:
        places = [base(store)]
    elif (usual := _store_of_site(env)) is None:
        places = [base(None)]
    else:
        places = [base(usual)]
        with contextlib.suppress(BackendError):  # homes may be on another file system
            places.append(base(None))
    return {job_id: f"{place}/{job_id}" for place in places for job_id in _job_ids(access, place)}


def _store_of_site(env: Mapping[str, str]) -> str | None:
    """The URL where jobs go that name no store, if the site file has one.

    Raises:
        BackendError: it cannot be read.
    """
    store = of_site(env, "store")
    return store if store is not None and "://" in store.removeprefix("file://") else None


def _job_ids(access: Access, base: str) -> list[str]:
    try:
        return [stat.name for stat in access.hdfs(base).list(base) if stat.is_dir]
    except NotFound:
        return []
    except OSError as error:
        raise BackendError(f"The jobs at {base} cannot be listed: {error}") from error


class RemoteStore:
    """The jobs of all users below a URL, for who can read them all.

    Raises:
        BackendError: it is none on HDFS, or there is no cluster's configuration here.
    """

    pause_s: float = 5.0
    """It is not listed oftener than this."""

    def __init__(self, url: str, env: Mapping[str, str] = os.environ) -> None:
        self._access = shared(folder_of_site(env), env)
        self.place: str = staging.base_url(url, self._access.configuration, "").rstrip("/")
        self._hdfs = self._access.hdfs(self.place)
        self.wants_proof: bool = self._access.configuration.security_enabled
        """The cluster has Kerberos: nobody is a user there by their name alone."""

    def owner_of(self, user: str) -> str:
        """The account that the user's folder belongs to."""
        return self._hdfs.stat(f"{self.place}/{user}").owner

    def acting_as(self, user: str) -> dict[str, str]:
        """Variables that make a program that user, where the cluster wants no proof."""
        return {USER: user, VARIABLES[0]: self._access.folder}

    def users(self) -> list[str]:
        """Names of the users' folders."""
        return [stat.name for stat in self._hdfs.list(self.place) if stat.is_dir]

    def jobs_of(self, user: str) -> list[str]:
        """Names of the folders in one."""
        found = self._hdfs.list(f"{self.place}/{user}")
        return [stat.name for stat in found if stat.is_dir]

    def adopt(self, user: str, job_id: str, local: Path) -> bool:
        """Copy what is needed to list the job; false if it is none (yet)."""
        url = f"{self.place}/{user}/{job_id}"
        sizes = {stat.name: stat.size for stat in self._hdfs.list(url) if not stat.is_dir}
        if layout.META not in sizes:
            return False
        origin = local_copy.CopyOrigin(folder=url, owner=self._hdfs.stat(url).owner)
        local_copy.begin(local, origin)
        with contextlib.suppress(NotFound):
            for stat in self._hdfs.list(f"{url}/{layout.SECRETS}"):
                if stat.name != layout.VARIABLES:
                    sizes[f"{layout.SECRETS}/{stat.name}"] = stat.size
        mirror = Mirror(url, local, self._hdfs)
        for name, size in sizes.items():
            folder = name.rpartition("/")[0]
            if (folder or name in local_copy.AT_FIRST) and size <= local_copy.LARGEST_DOCUMENT:
                mirror.bring_file(name)
        local_copy.own_meta(local, url=url, backend="yarn", hadoop_conf=self._access.folder)
        return True
