"""What a cluster's files say where its daemons demand Kerberos."""

from __future__ import annotations

from tests.hadoop import artifacts
from tests.hadoop.kdc import HOST, REALM, SHORT, Kdc
from tests.hadoop.site import STANDBY_HOST, Daemon, Kind, Site

QOPS = "authentication,integrity,privacy"
"""The daemons offer all three; a client takes the one that its own configuration names."""

RULES = "\n".join(
    rf"RULE:[{parts}:$1@$0]({name}@{REALM.replace('.', '[.]')})s/.*/{short}/"
    for name, short in SHORT.items()
    for parts in ((1,) if name == "alice" else (2,))
)
_GATEWAY = "hadoop.proxyuser.gateway"


def _rules(site: Site) -> str:
    return rf"{RULES}{chr(10)}RULE:[1:$1@$0](carol@{REALM.replace('.', '[.]')})s/.*/{site.user}/"


def core(site: Site) -> dict[str, str]:
    servers = ";".join((HOST, STANDBY_HOST)[: site.options.kms])
    kms = f"kms://http@{servers}:{site.kms_port}/kms"
    return {
        **({"hadoop.security.key.provider.path": kms} if site.options.kms else {}),
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.rpc.protection": QOPS,
        "hadoop.security.auth_to_local": f"{_rules(site)}\nDEFAULT",
        f"{_GATEWAY}.hosts": "*",
        f"{_GATEWAY}.users": "*",
        # None of these are accounts of the machine: no program is asked for their groups.
        "hadoop.user.group.static.mapping.overrides": ";".join(
            f"{name}=users" for name in ("ally", "bob", "gateway", "hdfs", "yarn", "dr.who")
        ),
    }


def hdfs(site: Site) -> dict[str, str]:
    keys = str(Kdc(site.realm_dir).services)
    return {
        "dfs.block.access.token.enable": "true",
        "dfs.data.transfer.protection": QOPS,
        # Else SASL on data transfer demands HTTPS of every daemon.
        "ignore.secure.ports.for.testing": "true",
        **{f"dfs.{kind}.keytab.file": keys for kind in ("namenode", "datanode")},
        "dfs.namenode.kerberos.principal": f"nn/_HOST@{REALM}",
        # Its name here is an address, as the nodes' are: one key for all.
        "dfs.datanode.kerberos.principal": f"dn/{HOST}@{REALM}",
        "dfs.namenode.kerberos.internal.spnego.principal": f"HTTP/_HOST@{REALM}",
        "dfs.web.authentication.kerberos.principal": f"HTTP/_HOST@{REALM}",
        "dfs.web.authentication.kerberos.keytab": keys,
    }


def kms(site: Site, number: int) -> dict[str, str]:
    """``kms-site.xml``."""
    kerberos = "hadoop.kms.authentication"
    keystore = site.data_dir(Daemon(Kind.KMS)) / "keys.jceks"
    tokens = f"{kerberos}.zk-dt-secret-manager"
    shared = {
        f"{tokens}.enable": "true",
        f"{tokens}.zkConnectionString": f"{site.head}:{site.zookeeper_port}",
        f"{tokens}.zkAuthType": "none",
    }
    return {
        **(shared if site.options.zookeeper and site.options.kms > 1 else {}),
        "hadoop.kms.http.host": site.kms_host(number),
        "hadoop.kms.http.port": str(site.kms_port),
        "hadoop.kms.key.provider.uri": f"jceks://file@{keystore}",
        f"{kerberos}.type": "kerberos",
        f"{kerberos}.kerberos.keytab": str(Kdc(site.realm_dir).services),
        f"{kerberos}.kerberos.principal": f"HTTP/{STANDBY_HOST if number == 2 else HOST}@{REALM}",
        f"{kerberos}.kerberos.name.rules": f"{_rules(site)}\nDEFAULT",
        "hadoop.kms.proxyuser.gateway.hosts": "*",
        "hadoop.kms.proxyuser.gateway.users": "*",
        # Whoever may ask may use any key.
        "hadoop.kms.key.authorization.enable": "false",
    }


def yarn(site: Site) -> dict[str, str]:
    keys = str(Kdc(site.realm_dir).services)
    return {
        "yarn.resourcemanager.principal": f"rm/_HOST@{REALM}",
        "yarn.resourcemanager.keytab": keys,
        "yarn.nodemanager.principal": f"nm/{HOST}@{REALM}",
        "yarn.nodemanager.keytab": keys,
        "yarn.admin.acl": f"{site.user},yarn",
        # With security a NodeManager opens logs by Hadoop's native library, and ends where it has none. It takes
        # only those of the submitter's own account: carol's.
        "yarn.log-aggregation-enable": "true" if artifacts.native() else "false",
    }


def container_env(site: Site) -> str:
    """What stands for the nodes' ``/etc/krb5.conf``, for ``yarn.nodemanager.admin-env``."""
    env = Kdc(site.realm_dir).env()
    del env["KRB5CCNAME"]
    return "".join(f",{name}={value}" for name, value in env.items())
