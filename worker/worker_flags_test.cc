// SPDX-License-Identifier: Apache-2.0

#include "worker/worker_flags.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/process/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster_entry.h"

namespace lodestar::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WorkerFlagsTest : public testing::Test {
 protected:
  static absl::StatusOr<WorkerFlags> Read(std::vector<std::string> arguments) {
    absl::FlagSaver saver;
    arguments.push_back("--data=corpus.txt");
    const absl::StatusOr<process::CommandLine> line = process::ParseCommandLine(arguments);
    EXPECT_TRUE(line.ok()) << line.status();
    return ReadWorkerFlags(line->given);
  }
  static std::string ErrorOf(const std::vector<std::string>& arguments) {
    return std::string(Read(arguments).status().message());
  }
};

TEST_F(WorkerFlagsTest, EveryFlagIsInHelp) {
  const std::string help = WorkerHelp();
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "worker_flags.cc")) continue;
    EXPECT_THAT(help, HasSubstr("\n  --" + std::string(name)));
  }
}

TEST_F(WorkerFlagsTest, HelpFitsATerminal) {
  for (const std::string& help : {WorkerHelp(), WorkerShortHelp()}) {
    for (absl::string_view line : absl::StrSplit(help, '\n')) EXPECT_LE(line.size(), 80) << line;
  }
}

TEST_F(WorkerFlagsTest, LeavingTakesAServerThatIsWellSomeTime) {
  EXPECT_EQ(Read({"--leave_timeout=1s"})->worker.life.leave_timeout, absl::Seconds(1));
  EXPECT_THAT(ErrorOf({"--leave_timeout=0s"}),
              AllOf(HasSubstr("--leave_timeout=0"), HasSubstr("1s")));
}

TEST_F(WorkerFlagsTest, ConnectTimeoutOfZeroMeansForEver) {
  EXPECT_EQ(Read({})->worker.life.connect.timeout, net::ConnectPatience::kDefault);
  EXPECT_EQ(Read({"--connect_timeout=90s"})->worker.life.connect.timeout, absl::Seconds(90));
  EXPECT_EQ(Read({"--connect_timeout=0"})->worker.life.connect.timeout, absl::InfiniteDuration());
  EXPECT_THAT(ErrorOf({"--connect_timeout=1ms"}), HasSubstr("--connect_timeout=1ms"));
}

TEST_F(WorkerFlagsTest, NoticesComeWithTheTimeThatTheirCloudGives) {
  EXPECT_FALSE(Read({})->notice.has_value());
  EXPECT_EQ(Read({"--notice=gcp"})->notice_watch.grace, absl::Seconds(30));
  EXPECT_EQ(Read({"--notice=file:/run/going"})->notice_watch.grace, absl::Minutes(2));
  EXPECT_EQ(Read({"--notice=gcp", "--notice_grace=1m"})->notice_watch.grace, absl::Minutes(1));
  EXPECT_THAT(ErrorOf({"--notice=ec2"}), HasSubstr("--notice='ec2' is unknown; allowed: aws"));
  EXPECT_THAT(ErrorOf({"--notice=aws", "--notice_grace=100ms"}), HasSubstr("--notice_grace=100ms"));
  EXPECT_THAT(ErrorOf({"--notice_grace=1m"}), HasSubstr("no effect without --notice"));
}

TEST_F(WorkerFlagsTest, WhoseCertificateWasThrownAwayHearsThatAndNotOfPlainTextAlone) {
  const std::string state = absl::StrCat(testing::TempDir(), "/state");
  const std::string folder = absl::StrCat(state, "/joined/1111/worker-box");
  std::filesystem::create_directories(folder);
  wire::ThrowAwayCertificate(security::CredentialFilesIn(folder), "worker box was revoked at noon");
  const std::vector<std::string> arguments = {"--coordinator=192.0.2.1:1", "--state_dir=" + state};
  std::vector<std::string> as_box = arguments;
  as_box.push_back("--name=box");
  EXPECT_THAT(ErrorOf(as_box),
              AllOf(HasSubstr("is another machine, and without --join"),
                    HasSubstr("worker-box was thrown away: worker box was revoked at noon")));
  EXPECT_THAT(ErrorOf(arguments), Not(HasSubstr("thrown away")));
}

TEST_F(WorkerFlagsTest, ResidualsAreKeptWhereTheNextProcessFindsThem) {
  EXPECT_EQ(Read({})->worker.residual_folder, "");
  EXPECT_EQ(Read({"--state_dir=s"})->worker.residual_folder, "") << "its name has the process id";
  EXPECT_EQ(Read({"--name=w"})->worker.residual_folder, "") << "nobody said where";
  const WorkerFlags flags = *Read({"--state_dir=s", "--name=w"});
  EXPECT_EQ(flags.worker.residual_folder, "s/residuals/w");
  EXPECT_EQ(flags.worker.keep_residuals, KeepResiduals::kLocalSteps);
  EXPECT_EQ(Read({"--state_dir=s", "--name=w", "--keep_residuals=always"})->worker.keep_residuals,
            KeepResiduals::kAlways);
  EXPECT_TRUE(Read({"--keep_residuals=never"}).ok());
  EXPECT_THAT(ErrorOf({"--keep_residuals=always", "--name=w"}),
              AllOf(HasSubstr("--keep_residuals has no effect"), HasSubstr("--state_dir")));
  EXPECT_THAT(ErrorOf({"--keep_residuals=yes"}),
              AllOf(HasSubstr("--keep_residuals='yes'"), HasSubstr("never, local_steps, always")));
}

TEST_F(WorkerFlagsTest, DeviceAndArithmetic) {
  const WorkerFlags defaults = *Read({});
  EXPECT_EQ(defaults.worker.device.kind, "auto");
  EXPECT_EQ(defaults.worker.device.compute, kernels::DType::kF32);
  EXPECT_EQ(defaults.workload.recompute, model::Recompute::kNone);
  EXPECT_EQ(defaults.worker.device.fusion, factory::FusionPolicy::kMeasure);
  const WorkerFlags flags = *Read({"--device=cuda:2", "--dtype=bf16", "--threads=3",
                                   "--recompute=block", "--fusion=never", "--repeatable=false"});
  EXPECT_EQ(flags.worker.device.kind, "cuda:2");
  EXPECT_EQ(flags.worker.device.compute, kernels::DType::kBf16);
  EXPECT_EQ(flags.worker.device.threads, 3);
  EXPECT_EQ(flags.workload.recompute, model::Recompute::kBlock);
  EXPECT_EQ(flags.worker.device.fusion, factory::FusionPolicy::kNever);
  EXPECT_TRUE(defaults.worker.device.is_repeatable);
  EXPECT_FALSE(flags.worker.device.is_repeatable);
}

TEST_F(WorkerFlagsTest, TuningIsOfCards) {
  EXPECT_EQ(Read({})->worker.tuning_path, "");
  // The flag may name a path that cannot be read or written. The worker notices this later and
  // continues.
  EXPECT_EQ(Read({"--tuning_file=/nowhere/tuning"})->worker.tuning_path, "/nowhere/tuning");
  EXPECT_EQ(Read({"--tuning_file=t", "--device=cuda:1"})->worker.tuning_path, "t");
  EXPECT_THAT(ErrorOf({"--tuning_file=t", "--fusion=always"}),
              AllOf(HasSubstr("--tuning_file"), HasSubstr("--fusion")));
  EXPECT_THAT(ErrorOf({"--tuning_file=t", "--device=cpu"}),
              HasSubstr("--tuning_file has no effect with --device=cpu"));
}

TEST_F(WorkerFlagsTest, DataIsFoundByItselfUnlessTold) {
  const data::DataConfig defaults = Read({})->workload.data;
  EXPECT_EQ(defaults.path, "corpus.txt");
  EXPECT_EQ(defaults.heldout_path, "");
  EXPECT_EQ(defaults.format, "auto");
  EXPECT_EQ(defaults.token_bytes, 0);
  const data::DataConfig told =
      Read({"--heldout_data=val.bin", "--data_format=tokens", "--token_bytes=4"})->workload.data;
  EXPECT_EQ(told.heldout_path, "val.bin");
  EXPECT_EQ(told.format, "tokens");
  EXPECT_EQ(told.token_bytes, 4);
  EXPECT_THAT(ErrorOf({"--token_bytes=3"}),
              AllOf(HasSubstr("--token_bytes='3'"), HasSubstr("auto, 2, 4")));
}

TEST_F(WorkerFlagsTest, MicroBatchesAreWhatFitsUnlessForced) {
  EXPECT_EQ(Read({})->workload.max_micro_batch, 0);
  EXPECT_EQ(Read({"--max_micro_batch=64"})->workload.max_micro_batch, 64);
}

TEST_F(WorkerFlagsTest, WrongValuesNameFlagValueAndWhatIsAllowed) {
  for (const char* device :
       {"gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:0,0", "cuda:0,", "oracle"}) {
    EXPECT_THAT(ErrorOf({std::string("--device=") + device}),
                AllOf(HasSubstr(std::string("--device='") + device), HasSubstr("cuda:N")));
  }
  EXPECT_THAT(ErrorOf({"--dtype=fp16"}), AllOf(HasSubstr("--dtype='fp16'"), HasSubstr("bf16")));
  EXPECT_THAT(ErrorOf({"--dtype=bf16", "--device=cpu"}), HasSubstr("needs a CUDA card"));
  EXPECT_THAT(ErrorOf({"--recompute=all"}),
              AllOf(HasSubstr("--recompute='all'"), HasSubstr("none, gelu, block")));
  EXPECT_THAT(ErrorOf({"--fusion=no"}),
              AllOf(HasSubstr("--fusion='no'"), HasSubstr("measure, never, always")));
  EXPECT_THAT(ErrorOf({"--threads=-1"}), HasSubstr("--threads=-1"));
  EXPECT_THAT(ErrorOf({"--max_micro_batch=-1"}), HasSubstr("--max_micro_batch=-1"));
}

TEST_F(WorkerFlagsTest, TransfersOverlapAndNothingIsTracedUnlessAsked) {
  const WorkerFlags defaults = *Read({});
  EXPECT_TRUE(defaults.worker.overlap);
  EXPECT_EQ(defaults.worker.trace_path, "");
  const std::string path = absl::StrCat(testing::TempDir(), "/worker_flags_trace.json");
  const WorkerFlags flags =
      *Read({absl::StrCat("--trace=", path), "--trace_rounds=7", "--nooverlap"});
  EXPECT_FALSE(flags.worker.overlap);
  EXPECT_EQ(flags.worker.trace_path, path);
  EXPECT_EQ(flags.worker.trace_rounds, 7);
}

TEST_F(WorkerFlagsTest, ATraceThatCannotBeWrittenIsRefusedAtTheStart) {
  EXPECT_THAT(ErrorOf({"--trace=/nowhere/at/all.json"}),
              AllOf(HasSubstr("--trace=/nowhere/at/all.json: "), HasSubstr("No such file")));
  EXPECT_THAT(ErrorOf({absl::StrCat("--trace=", testing::TempDir())}), HasSubstr("is a folder"));
  const std::string path = absl::StrCat(testing::TempDir(), "/worker_flags_trace.json");
  EXPECT_THAT(ErrorOf({absl::StrCat("--trace=", path), "--trace_rounds=0"}),
              AllOf(HasSubstr("--trace_rounds=0"), HasSubstr("1 to 1000")));
  EXPECT_THAT(ErrorOf({"--trace_rounds=7"}),
              HasSubstr("--trace_rounds has no effect without --trace."));
}

}  // namespace
}  // namespace lodestar::worker
