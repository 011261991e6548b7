#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""deploy/slurm/lodestar.sbatch under slurmctld and slurmd of a test: see run.sh."""
import os
import re
import shutil
import socket
import subprocess

import cluster_processes
from cluster_processes import BINARIES, PATIENCE_SECONDS, ReservedPort, wait_until

CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=3
CryptoType=crypto/munge
SlurmctldPort={controller_port}
SlurmdPort={node_port}
StateSaveLocation={folder}/controller
SlurmdSpoolDir={folder}/node
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0
ReturnToService=2
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class SlurmJobTest(cluster_processes.ClusterTestCase):

  def setUp(self):
    super().setUp()
    os.chmod(self.folder, 0o755)  # munge wants to know who may come near its socket
    host = socket.gethostname().partition(".")[0]
    ports = [ReservedPort(), ReservedPort()]
    self.write("slurm.conf", CONFIG.format(host=host, folder=self.folder, controller_port=ports[0].number,
                                           node_port=ports[1].number))
    self.write("munge.key", os.urandom(128))
    os.chmod(self.path("munge.key"), 0o400)
    os.mkdir(self.path("bin"))
    for name in ("ps_server", "gpu_worker", "psctl"):
      shutil.copy(BINARIES[name], self.path("bin", name))
    self.environment = {**os.environ, "SLURM_CONF": self.path("slurm.conf"), "LODESTAR_STATE": self.path("keys"),
                        "PATH": self.path("bin") + ":" + os.environ["PATH"]}
    self.start(["munged", "--foreground", "--force", "--key-file=" + self.path("munge.key"),
                "--socket=" + self.path("munge.socket"), "--pid-file=" + self.path("munge.pid"),
                "--log-file=" + self.path("munge.log.txt"), "--seed-file=" + self.path("munge.seed")], "munged")
    wait_until(lambda: os.path.exists(self.path("munge.socket")), self.logs)
    for port in ports:
      port.close()
    self.start(["slurmctld", "-D", "-i"], "slurmctld", env=self.environment)
    self.start(["slurmd", "-D", "-N", host], "slurmd", env=self.environment)
    wait_until(lambda: "idle" in self.slurm("sinfo", "--noheader", "--format=%T"), self.logs)

  def slurm(self, *command):
    done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
                          check=False)
    return done.stdout + done.stderr

  def output(self):
    path = self.path("job.txt")
    if not os.path.exists(path):
      return ""
    with open(path, encoding="utf-8", errors="replace") as file:
      return file.read()

  def rounds_kept(self):
    return [int(name[len("round-"):]) for name in os.listdir(self.path("checkpoints")) if re.fullmatch(r"round-\d+", name)]

  def wait_for_output(self, text, times=1):
    wait_until(lambda: self.output().count(text) >= times, lambda: self.output() + self.logs())

  def test_a_job_whose_time_is_over_goes_on_when_it_is_queued_again(self):
    submitted = self.slurm(
        "sbatch", "--parsable", "--ntasks=2", "--time=10", "--output=" + self.path("job.txt"), "--chdir=" + self.folder,
        "deploy/slurm/lodestar.sbatch", "--data=" + self.path("corpus.txt"), "--device=cpu", "--threads=1", "--",
        "--model=" + self.path("model.textproto"), "--rounds=600", "--batch_size=2", "--eval_samples=8",
        "--checkpoint_dir=" + self.path("checkpoints"))
    job = submitted.strip()
    self.assertRegex(job, r"^\d+$")
    self.wait_for_output("worker joined name=", times=2)
    self.wait_for_output(" samples/s  2 workers")
    # As Slurm does two minutes before the end of the time.
    self.slurm("scancel", "--signal=USR1", "--batch", job)
    self.wait_for_output("lodestar.sbatch: queued again")
    kept = self.rounds_kept()
    self.assertTrue(kept, self.output())
    self.wait_for_output("time 2; psctl status")
    self.wait_for_output("lodestar.sbatch: the job is over")
    second = self.output().rpartition("time 2; psctl status")[2]
    self.assertRegex(second, rf"(continues|resumes|resumed|goes on)\b.*\b0*{max(kept)}\b")
    self.assertNotIn("round 0/600", second)
    # One that all were lost from has another in its place.
    self.assertGreaterEqual(max(self.rounds_kept()), 600)
    wait_until(lambda: job not in self.slurm("squeue", "--noheader", "--states=RUNNING,PENDING"), self.logs)


if __name__ == "__main__":
  cluster_processes.main()
