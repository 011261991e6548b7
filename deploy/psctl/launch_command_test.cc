// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/launch_command.h"

#include <signal.h>
#include <sys/wait.h>

#include "common/output/output_file.h"
#include "common/storage/file_system.h"
#include "common/testing/checkpoint_files.h"
#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::psctl {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

LaunchSite Site(int num_cards) {
  return {.server_program = "ps_server",
          .worker_program = "gpu_worker",
          .ports = {7001, 7002},
          .num_cards = num_cards};
}

// Returns the --device of each worker.
std::vector<std::string> Devices(const std::string& asked, int workers, int num_cards) {
  LaunchOptions options;
  options.workers = workers;
  options.device = asked;
  std::vector<std::string> devices;
  for (const ProcessSpec& spec : PlanWorkers(options, Site(num_cards))) {
    for (const std::string& argument : spec.arguments) {
      if (argument.starts_with("--device=")) devices.push_back(argument.substr(9));
    }
  }
  return devices;
}

TEST(PlanTest, DealsWorkersOutOverTheCards) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(Devices("auto", 3, 2), (Names{"cuda:0", "cuda:1", "cuda:0"}));
  EXPECT_EQ(Devices("cuda", 2, 8), (Names{"cuda:0", "cuda:1"}));
  // A worker whose device is named gets that device.
  EXPECT_EQ(Devices("cuda:1", 2, 2), (Names{"cuda:1", "cuda:1"}));
  EXPECT_EQ(Devices("cpu", 2, 2), (Names{"cpu", "cpu"}));
  EXPECT_EQ(Devices("cuda:all", 1, 4), (Names{"cuda:0,1,2,3"}));
  EXPECT_EQ(Devices("cuda:all", 2, 5), (Names{"cuda:0,2,4", "cuda:1,3"}));
  EXPECT_EQ(Devices("cuda:all", 3, 2), (Names{"cuda:0", "cuda:1", "cuda:0"}));
  // There are not several cards to deal out. With `auto` a worker may still use the CPU.
  EXPECT_EQ(Devices("auto", 2, 1), (Names{"auto", "auto"}));
  EXPECT_EQ(Devices("cuda", 2, 0), (Names{"cuda", "cuda"}));
}

TEST(PlanTest, WorkersAreGivenTheirFlags) {
  LaunchOptions options;
  options.worker_flags = *ParseWorkerFlags("--dtype=bf16  --recompute=block");
  for (const ProcessSpec& spec : PlanWorkers(options, Site(0))) {
    EXPECT_THAT(spec.arguments, Contains("--dtype=bf16"));
    EXPECT_THAT(spec.arguments, Contains("--recompute=block"));
  }
  EXPECT_TRUE(ParseWorkerFlags("")->empty());
  for (const char* text :
       {"dtype=bf16", "--dtype=bf16 x", "--device=cuda", "--name=a", "--join=x"}) {
    EXPECT_EQ(ParseWorkerFlags(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(PlanTest, DevicesThatNoWorkerCanHaveAreRefusedBeforeTheStart) {
  EXPECT_TRUE(CheckLaunchDevice("auto").ok());
  EXPECT_TRUE(CheckLaunchDevice("cpu").ok());
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:0,0", "oracle"}) {
    EXPECT_THAT(std::string(CheckLaunchDevice(device).message()), HasSubstr("cuda:N,M")) << device;
  }
  // There is no plugin beside this test, but workers may have one.
  EXPECT_TRUE(CheckLaunchDevice("cuda:all").ok());
}

TEST(PlanTest, ServersExitWhenDoneOnlyIfAsked) {
  LaunchOptions options;
  EXPECT_THAT(PlanServers(options, Site(0)).front().arguments, Not(Contains("--exit_when_done")));
  options.exit_when_done = true;
  EXPECT_THAT(PlanServers(options, Site(0)).front().arguments, Contains("--exit_when_done"));
}

TEST(PlanTest, ServersComeFirstEndLastAndKnowTheirPlaces) {
  LaunchOptions options;
  options.servers = 2;
  options.workers = 1;
  options.server_flags = {"--model=mlp"};
  options.data_partition = "own";
  const std::vector<ProcessSpec> specs = PlanServers(options, Site(0));
  ASSERT_EQ(specs.size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(specs[i].ends_last);
    EXPECT_EQ(specs[i].ends_cluster, i == 0);
    EXPECT_THAT(specs[i].arguments, Contains("--model=mlp"));
  }
  EXPECT_THAT(specs[1].arguments, Contains("--shard=1/2"));
  EXPECT_THAT(specs[1].arguments, Contains("--coordinator=127.0.0.1:7001"));
  const std::vector<ProcessSpec> workers = PlanWorkers(options, Site(0));
  ASSERT_EQ(workers.size(), 1);
  EXPECT_FALSE(workers[0].ends_last);
  EXPECT_THAT(workers[0].arguments, Contains("--data_partition=own"));
  EXPECT_THAT(workers[0].arguments, Contains("--coordinator=127.0.0.1:7001"));
}

TEST(PlanTest, TheJobBeginsWithAllWorkersUnlessTheServersAreToldOtherwise) {
  LaunchOptions options;
  options.servers = 2;
  options.workers = 3;
  options.server_flags = {"--min_workers=1"};
  const std::vector<ProcessSpec> specs = PlanServers(options, Site(0));
  std::vector<std::string> given;
  for (const std::string& argument : specs[0].arguments) {
    if (argument.starts_with("--min_workers")) given.push_back(argument);
  }
  EXPECT_THAT(given, ElementsAre("--min_workers=3", "--min_workers=1")) << "the last one counts";
  EXPECT_THAT(specs[1].arguments, Not(Contains("--min_workers=3"))) << "the coordinator decides it";
}

TEST(PlanTest, ARestartedServerGoesOnFromWhatTheLaunchHasSaved) {
  const std::string root = ::testing::TempDir() + "/restarted";
  const auto plan = [&root](std::vector<std::string> flags) {
    LaunchOptions options;
    options.server_flags = std::move(flags);
    options.server_flags.push_back("--checkpoint_dir=" + root);
    return PlanServers(options, Site(0)).front().more_arguments_of_restart;
  };
  const std::string path = root + "/round-00000007";
  WriteCheckpoint(storage::FileSystem::Real(), path, /*round=*/7, "the old run's");
  EXPECT_EQ(plan({"--rounds=3"}), nullptr) << "it goes on by itself";
  const auto never = plan({"--resume=never"});
  ASSERT_NE(never, nullptr);
  EXPECT_THAT(never(), IsEmpty()) << "the launch has saved nothing";
  // The launch has written a checkpoint in place of the old one with the same name.
  WriteCheckpoint(storage::FileSystem::Real(), path, /*round=*/7, "the launch's");
  EXPECT_THAT(never(), ElementsAre("--resume=latest"));
}

TEST(PlanTest, WorkersLogAsTheServersDo) {
  const std::string file = ::testing::TempDir() + "/log.flags";
  ASSERT_OK(output::WriteFileAtomically(file, "--log_level=info\n--log_level debug\n"));
  LaunchOptions options;
  options.workers = 1;
  options.server_flags = {"--log_format", "json", "--flagfile=" + file, "--rounds=3"};
  const std::vector<std::string> here = PlanWorkers(options, Site(0))[0].arguments;
  EXPECT_THAT(here, Contains("--log_format=json"));
  EXPECT_THAT(here, Contains("--log_level=debug"));
  EXPECT_THAT(here, Not(Contains("--rounds=3")));
  options.hosts = "hosts";
  const std::vector<WorkerHost> hosts = {{"gpu1", 1, {}}};
  EXPECT_THAT(PlanHosts(options, hosts, "")[0].arguments.back(),
              AllOf(HasSubstr("'--log_format=json'"), HasSubstr("'--log_level=debug'")));
  options.server_flags.clear();
  EXPECT_THAT(PlanHosts(options, hosts, "")[0].arguments.back(), Not(HasSubstr("--log_")));
}

TEST(PlanTest, WorkersOfHostsGetTheSecretInTheirInput) {
  LaunchOptions options;
  options.data = "/it's here";
  options.hosts = "hosts";
  options.restarts = 2;
  const std::vector<WorkerHost> hosts = {{"gpu1", 1, {}}, {"me@gpu2", 2, {3, 5}}};
  const std::vector<ProcessSpec> specs = PlanHosts(options, hosts, "lodestar://secret");
  ASSERT_EQ(specs.size(), 3);
  EXPECT_EQ(specs[0].role, "worker-0 gpu1");
  EXPECT_EQ(specs[2].role, "worker-2 me@gpu2");
  EXPECT_THAT(specs[1].arguments, Contains("me@gpu2"));
  EXPECT_THAT(specs[1].arguments, Contains(StartsWith("-oConnectTimeout=")));
  EXPECT_THAT(specs[1].not_found_advice, HasSubstr("--worker_program"));
  const std::vector<RegistrationWatch::Worker> workers = WorkersOf(hosts);
  ASSERT_EQ(workers.size(), specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    EXPECT_EQ(specs[i].role, workers[i].name + " " + workers[i].host);
    EXPECT_THAT(specs[i].arguments.back(), HasSubstr("'--name=" + workers[i].name + "'"));
  }
  EXPECT_THAT(specs[0].arguments.back(), HasSubstr("'--device=auto'"));
  EXPECT_THAT(specs[2].arguments.back(), HasSubstr("'--device=cuda:5'"));
  EXPECT_THAT(specs[2].arguments.back(), HasSubstr(R"('--data=/it'\''s here')"));
  for (const ProcessSpec& spec : specs) {
    EXPECT_EQ(spec.input, "lodestar://secret\n");
    EXPECT_EQ(spec.restarts, 2);
    for (const std::string& argument : spec.arguments) {
      EXPECT_THAT(argument, Not(HasSubstr("secret")));
    }
  }
  EXPECT_THAT(PlanServers(options, Site(0)).front().arguments, Contains("--listen=0.0.0.0:7001"));
}

TEST(EndTextTest, NamesCodeOrSignal) {
  EXPECT_EQ(EndText(W_EXITCODE(/*ret=*/127, /*sig=*/0)), "ended with exit code 127");
  EXPECT_EQ(EndText(W_EXITCODE(/*ret=*/143, /*sig=*/0)),
            "ended as requested by SIGTERM, with exit code 143");
  EXPECT_EQ(EndText(W_EXITCODE(/*ret=*/0, SIGKILL)), "was killed by signal 9 (SIGKILL)");
}

TEST(CheckServerFlagsTest, RefusesWhatTheLaunchDecides) {
  EXPECT_OK(CheckServerFlags({}));
  EXPECT_OK(CheckServerFlags({"--model=mlp", "--rounds", "10", "--insecure", "-", "--"}));
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--listen=127.0.0.1:5000"},
                                             {"--rounds=10", "-listen", "127.0.0.1:5000"},
                                             {"--shard=0/2"},
                                             {"--coordinator=other:1"},
                                             {"--advertise=other:1"},
                                             {"--exit_when_done"},
                                             {"--noexit_when_done"}}) {
    const absl::Status status = CheckServerFlags(flags);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << flags.back();
    EXPECT_THAT(std::string(status.message()), StartsWith("--"));
  }
}

TEST(CheckServerFlagsTest, LooksIntoFlagFiles) {
  const std::string inner = ::testing::TempDir() + "/inner.flags";
  const std::string outer = ::testing::TempDir() + "/outer.flags";
  ASSERT_OK(output::WriteFileAtomically(inner, "--rounds=10\n--listen 127.0.0.1:5000\n"));
  ASSERT_OK(output::WriteFileAtomically(outer, "--flagfile=" + inner + "\n"));
  for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
           {"--flagfile=" + outer}, {"--flagfile", inner}, {"--flagfile=" + inner + "," + outer}}) {
    const absl::Status status = CheckServerFlags(flags);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << flags.front();
    EXPECT_THAT(std::string(status.message()), HasSubstr("--listen (" + inner + " line 2)"));
  }
  EXPECT_THAT(std::string(CheckServerFlags({"--flagfile=/no/such/file"}).message()),
              HasSubstr("/no/such/file"));
}

}  // namespace
}  // namespace lodestar::psctl
