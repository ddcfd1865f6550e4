"""Variables by which another launcher tells a program who it is.

A job that is submitted from inside a batch script of Slurm, under ``mpirun`` or from a worker of torchrun would hand
them to its own programs, whose frameworks believe them: two workers of Lightning are both rank 0 of Slurm's world.
Settings of such launchers that say nothing of a world (``OMPI_MCA_btl``, ``I_MPI_FABRICS``) are left alone.

Sources: the manual of ``srun`` ("output environment variables"); Open MPI's ``mpirun(1)``; MPICH's PMI; PyTorch's
``torch.distributed.run``; ``lightning.fabric.plugins.environments``; ``jax._src.clusters``.
"""

from __future__ import annotations

from collections.abc import Iterable

_PREFIXES = tuple(
    "SLURM_ SRUN_ PMI_ PMIX_ PRTE_ OMPI_COMM_WORLD_ OMPI_UNIVERSE_SIZE OMPI_MCA_orte_ OMPI_MCA_ess OMPI_MCA_pmix "
    "MPI_LOCAL HYDI_ HYDRA_ MV2_COMM_WORLD_ LSB_ JSM_NAMESPACE_ ALPS_APP_ PALS_ TORCHELASTIC_ PET_ "
    "JAX_COORDINATOR_ JAX_PROCESS_ JAX_NUM_PROCESSES HOROVOD_RANK HOROVOD_SIZE HOROVOD_LOCAL_ HOROVOD_CROSS_ "
    "HOROVOD_GLOO_RENDEZVOUS_ DMLC_ BYTEPS_".split()
)
_NAMES = frozenset(
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
    "NODE_RANK MASTER_ADDR MASTER_PORT TF_CONFIG".split()
)


def theirs(names: Iterable[str]) -> list[str]:
    """Those of the variables that another launcher has set, in order."""
    return sorted(name for name in names if name in _NAMES or name.startswith(_PREFIXES))
