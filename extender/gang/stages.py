"""Parts of jobs that are jobs of their own: they begin when others have completed.

Pods of all parts name the same job. The object of that job tells the parts apart, by
the roles of their pods (`size.Stage`).
"""

from collections.abc import Collection

from extender.gang.membership import Membership
from extender.gang.size import Size


class Stages:
    """The stages of each job that has some, and their sizes.

    The key of a stage is that of the job that its pods name, and the stage's name.
    """

    def __init__(self) -> None:
        #: {job as its pods name it: {role: stage}}
        self._of_job: dict[str, dict[str, str]] = {}
        #: {stage: its size, as it was read with that of its job}
        self._sizes: dict[str, Size] = {}

    def __len__(self) -> int:
        return len(self._of_job)

    def job_of(self, membership: Membership) -> str:
        """Return the job of a pod: that which it names, or the stage for its role."""
        job = membership.job
        stages = self._of_job.get(job)
        return stages.get(membership.role, job) if stages else job

    def size_of(self, stage: str) -> Size | None:
        """Return the size of a stage; None if there is no such stage."""
        return self._sizes.get(stage)

    def put(self, job: str, size: Size) -> Collection[str]:
        """Set the stages of a job, as its size says; return their roles.

        Args:
            job: As its pods name it.
        """
        self._forget(job)
        stages = {
            role: f"{job}/{stage.name}" for stage in size.stages for role in stage.roles
        }
        if stages:
            self._of_job[job] = stages
            sizes = {f"{job}/{stage.name}": stage.size for stage in size.stages}
            self._sizes.update(sizes)
        return stages

    def named_job(self, job: str) -> str:
        """Return the job as its pods name it, of which a job is a stage, or itself."""
        return next(
            (named for named, of in self._of_job.items() if job in of.values()), job
        )

    def retain(self, job: str, jobs: Collection[str]) -> None:
        """Forget the stages of a job if neither it nor one of them is in `jobs`.

        Args:
            job: As its pods name it, or one of its stages.
        """
        named = self.named_job(job)
        if not {named, *self._of_job.get(named, {}).values()} & {*jobs}:
            self._forget(named)

    def _forget(self, job: str) -> None:
        for stage in self._of_job.pop(job, {}).values():
            self._sizes.pop(stage, None)
