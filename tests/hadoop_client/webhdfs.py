"""HDFS over its web interface, as the file system that the reader of logs is given."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from urllib.parse import quote, urlencode

from tests.hadoop.cluster import Cluster


class WebHdfs:
    """Lists folders and reads ranges; counts the reads."""

    def __init__(self, cluster: Cluster) -> None:
        self._base = f"{cluster.nn_web}/webhdfs/v1"
        self._user = cluster.site.user
        self.reads = 0

    def _get(self, path: str, **query: object) -> bytes:
        asked = urlencode({**query, "user.name": self._user})
        with urllib.request.urlopen(f"{self._base}{quote(path)}?{asked}", timeout=20) as answer:
            return answer.read()

    def files(self, folder: str) -> dict[str, int]:
        try:
            told = json.loads(self._get(folder, op="LISTSTATUS"))
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return {}
            raise
        listed = told["FileStatuses"]["FileStatus"]
        return {each["pathSuffix"]: each["length"] for each in listed if each["type"] == "FILE"}

    def read(self, path: str, offset: int, length: int) -> bytes:
        self.reads += 1
        return self._get(path, op="OPEN", offset=offset, length=length) if length else b""
