"""Submits a shell command as an application's only container, by Howdah's own library, and waits for its end.

What is left is the cluster's share: no program of Howdah's runs in the container. Argument: the command.
"""

import sys
import time

from howdah.backends.yarn.access import shared
from howdah.hadoop.protos import yarn

access = shared()


async def submit() -> yarn.ApplicationIdProto:
    new = await access.manager.new_application()
    context = yarn.ApplicationSubmissionContextProto(
        application_id=new.id.to_proto(),
        application_name="benchmark",
        queue="default",
        am_container_spec=yarn.ContainerLaunchContextProto(command=[sys.argv[1]]),
        maxAppAttempts=1,
    )
    context.resource.memory = 512
    context.resource.virtual_cores = 1
    context.priority.priority = 0
    await access.manager.submit_application(context)
    return new.id


application = access.call(submit())
# It never registers as a master, so that to YARN it has failed, whatever its exit code.
while access.call(access.manager.application_report(application)).final_application_status == 0:
    time.sleep(0.05)
