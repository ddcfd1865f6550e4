"""A Hadoop client without a JVM: configuration, RPC, tokens, YARN's protocols, NameNode calls.

A library of its own: it imports nothing else of Howdah. It speaks Hadoop's RPC (version 9) over
asyncio to servers of Hadoop 3.3 to 3.5.

===================  ==============================================================================
`configuration`      the cluster's own XML files, addresses of its servers
`resourcemanager`    applications, nodes, queues, labels, as a client sees them
`scheduler`          registering, heartbeat and end, as an application's master sees them
`nodemanager`        starting, stopping and asking after containers
`namenode`           delegation tokens, users' groups, space and safe mode: files are hdfs-native's affair
`aggregated`         YARN's aggregated logs, both formats
`ids`                application, container and node ids; resources
`security`           who a client is, tokens and their files, Kerberos, the Key Management Server; what providers
                     of other services' tokens are told
`viewfs`             where the names of a ViewFs lead to
`errors`             everything that is raised
`protos`             the messages: ``protos.yarn``, ``protos.common``, ``protos.hdfs``
`rpc`                calls of any protocol: retries, fail-over; below it `connection`, `frames`, `retry`
===================  ==============================================================================
"""
