"""Submits an application with skein and waits for its end. Run by an interpreter that has skein.

Arguments: containers, MiB of a task, MiB of the master, the task's command, the archive or nothing.
"""

import sys
import time

import skein

containers, task_mib, master_mib, command, archive = sys.argv[1:6]
specification = skein.ApplicationSpec(
    name="benchmark",
    master=skein.Master(resources=skein.Resources(memory=f"{master_mib} MiB", vcores=1)),
    services={
        "task": skein.Service(
            instances=int(containers),
            resources=skein.Resources(memory=f"{task_mib} MiB", vcores=1),
            files={"environment": archive} if archive else {},
            script=command,
        )
    },
)
with skein.Client(log=False) as client:
    application = client.submit(specification)
    while (report := client.application_report(application)).final_status == "undefined":
        time.sleep(0.05)
sys.exit(0 if report.final_status == "succeeded" else f"{application}: {report.diagnostics}")
