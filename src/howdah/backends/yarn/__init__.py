"""YARN: containers of a Hadoop cluster, spoken to without a JVM."""
