"""Where containers come from: `base` is the contract, and each backend a package beside it.

`registry` finds backends by name, those of plug-ins too. `local` is this machine, `yarn` a Hadoop
cluster, `spark` a Spark application.
"""
