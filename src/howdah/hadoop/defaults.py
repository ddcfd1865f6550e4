"""Those of Hadoop's own defaults that a client acts on (core-, hdfs- and yarn-default.xml)."""

from __future__ import annotations

VALUES = {
    "fs.defaultFS": "file:///",
    "hadoop.tmp.dir": "/tmp/hadoop-${user.name}",
    "hadoop.security.authentication": "simple",
    "hadoop.rpc.protection": "authentication",
    "ipc.client.connect.timeout": "20000",
    "ipc.client.rpc-timeout.ms": "120000",
    "ipc.client.connection.maxidletime": "10000",
    "ipc.ping.interval": "60000",
    "ipc.maximum.data.length": "134217728",
    "ipc.maximum.response.length": "134217728",
    "ipc.client.fallback-to-simple-auth-allowed": "false",
    "yarn.http.policy": "HTTP_ONLY",
    "yarn.acl.enable": "false",
    "yarn.resourcemanager.hostname": "0.0.0.0",
    "yarn.resourcemanager.address": "${yarn.resourcemanager.hostname}:8032",
    "yarn.resourcemanager.scheduler.address": "${yarn.resourcemanager.hostname}:8030",
    "yarn.resourcemanager.admin.address": "${yarn.resourcemanager.hostname}:8033",
    "yarn.resourcemanager.webapp.address": "${yarn.resourcemanager.hostname}:8088",
    "yarn.resourcemanager.webapp.https.address": "${yarn.resourcemanager.hostname}:8090",
    "yarn.resourcemanager.connect.max-wait.ms": "900000",
    "yarn.resourcemanager.connect.retry-interval.ms": "30000",
    "yarn.resourcemanager.am.max-attempts": "2",
    "yarn.am.liveness-monitor.expiry-interval-ms": "600000",
    "yarn.nodemanager.remote-app-log-dir": "/tmp/logs",
    "yarn.nodemanager.remote-app-log-dir-suffix": "logs",
    "yarn.log-aggregation-enable": "false",
    "yarn.log-aggregation.file-formats": "TFile",
    "yarn.nodemanager.vmem-check-enabled": "true",
    "yarn.nodemanager.vmem-pmem-ratio": "2.1",
    "yarn.nodemanager.pmem-check-enabled": "true",
    "dfs.namenode.delegation.token.max-lifetime": "604800000",
    "dfs.namenode.delegation.token.renew-interval": "86400000",
}
"""Values by property name; what is not here has the default that the caller gives."""
