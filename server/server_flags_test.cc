// SPDX-License-Identifier: Apache-2.0

#include "server/server_flags.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/job/job_fields.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ServerFlagsTest : public testing::Test {
 protected:
  // Returns the message of the error, or an empty text. Each call starts from the defaults.
  std::string ErrorOf(const std::vector<std::string>& arguments) {
    absl::FlagSaver saver;
    return std::string(ParseServerCommandLine(arguments).status().message());
  }
  ServerCommandLine Parse(const std::vector<std::string>& arguments) {
    absl::FlagSaver saver;
    auto line = ParseServerCommandLine(arguments);
    EXPECT_TRUE(line.ok()) << line.status();
    return line.ok() ? *std::move(line) : ServerCommandLine{};
  }
};

TEST_F(ServerFlagsTest, DefaultsAreAJobThatRuns) {
  const ServerConfig config = Parse({}).config;
  EXPECT_EQ(config.network.listen.ToString(), "127.0.0.1:50051");
  EXPECT_EQ(config.job.mode, job::Mode::kSync);
  EXPECT_EQ(config.job.optimizer.kind, job::OptimizerKind::kAdamW);
  EXPECT_EQ(config.job.batch_size, 12);
  EXPECT_EQ(config.job.schedule.total_rounds, 2000);
  EXPECT_EQ(config.cluster.lease, absl::Seconds(10));
  EXPECT_EQ(config.cluster.round_timeout, absl::Hours(1));
  EXPECT_EQ(config.limits.max_connections, 4096);
  EXPECT_TRUE(config.is_coordinator());
}

TEST_F(ServerFlagsTest, RefusesRelativePathsInAFolderThatMessagesCannotName) {
  const std::filesystem::path before = std::filesystem::current_path();
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) /
                                       "donn\xe9"
                                       "es";
  std::filesystem::create_directories(folder);
  std::filesystem::current_path(folder);
  EXPECT_THAT(ErrorOf({"--checkpoint_dir=run"}),
              AllOf(HasSubstr("run"), HasSubstr("donn\\xe9es"), HasSubstr("not UTF-8")));
  EXPECT_THAT(ErrorOf({"--checkpoint_dir=/tmp/run"}), IsEmpty());
  std::filesystem::current_path(before);
}

TEST_F(ServerFlagsTest, EveryFlagIsInHelpOnce) {
  std::multiset<std::string> shown;
  for (const process::FlagGroup& group : ServerFlagGroups()) {
    shown.insert(group.flags.begin(), group.flags.end());
  }
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!absl::StrContains(flag->Filename(), "server_flags.cc")) continue;
    EXPECT_EQ(shown.count(std::string(name)), 1) << name;
  }
  for (const job::JobField& field : job::JobFields()) {
    EXPECT_EQ(shown.count(std::string(field.name)), 1) << field.name;
    EXPECT_EQ(absl::FindCommandLineFlag(field.name), nullptr) << field.name;
  }
  const std::string help = ServerHelp();
  for (const std::string& name : shown) {
    EXPECT_THAT(help, HasSubstr("\n  --" + name));
    EXPECT_TRUE(absl::FindCommandLineFlag(name) != nullptr || job::FindJobField(name) != nullptr)
        << name;
  }
}

TEST_F(ServerFlagsTest, HelpFitsATerminal) {
  for (absl::string_view line : absl::StrSplit(ServerHelp(), '\n'))
    EXPECT_LE(line.size(), 80) << line;
  const std::vector<std::string> brief = absl::StrSplit(ServerShortHelp(), '\n');
  EXPECT_LE(brief.size(), 100u);
  for (const std::string& line : brief) EXPECT_LE(line.size(), 80) << line;
}

TEST_F(ServerFlagsTest, ShortHelpHasTwentyFlags) {
  const std::string help = ServerShortHelp();
  int num_flags = 0;
  for (absl::string_view line : absl::StrSplit(help, '\n')) {
    num_flags += absl::StartsWith(line, "  --") ? 1 : 0;
  }
  EXPECT_EQ(num_flags, 20);
}

TEST_F(ServerFlagsTest, FlagFileAndCommandLineGiveOneConfig) {
  const std::string path = testing::TempDir() + "/server.flags";
  std::ofstream(path) << "--mode=local_sgd\n--local_steps=8\n--model=mlp\n";
  const ServerConfig config =
      Parse({"--flagfile=" + path, "--outer_optimizer=average", "--lease=2s", "--round_timeout=2m"})
          .config;
  EXPECT_EQ(config.job.mode, job::Mode::kLocalSgd);
  EXPECT_EQ(config.job.local_steps, 8);
  EXPECT_EQ(config.job.outer_optimizer, job::OuterOptimizerKind::kAverage);
  EXPECT_EQ(config.job.model.name, "mlp");
  EXPECT_EQ(config.cluster.lease, absl::Seconds(2));
  EXPECT_EQ(config.cluster.round_timeout, absl::Minutes(2));
}

TEST_F(ServerFlagsTest, WhatTheOperatorHasGivenIsKnown) {
  const std::string path = testing::TempDir() + "/given.flags";
  std::ofstream(path) << "--model=client\n--learning_rate=0.001\n";
  const ServerConfig config = Parse({"--flagfile=" + path, "--optimizer=adamw"}).config;
  EXPECT_TRUE(config.given.contains("learning_rate")) << "the default, but given";
  EXPECT_TRUE(config.given.contains("optimizer"));
  EXPECT_FALSE(config.given.contains("batch_size"));
}

TEST_F(ServerFlagsTest, EncodingsAreOfTheJob) {
  const job::JobSpec plain = Parse({}).config.job;
  EXPECT_EQ(plain.push_encoding, params::Encoding::kFp32);
  EXPECT_EQ(plain.pull_encoding, params::Encoding::kFp32);
  EXPECT_TRUE(plain.error_feedback);
  const job::JobSpec job =
      Parse({"--push_encoding=int8", "--pull_encoding=bf16", "--error_feedback=false"}).config.job;
  EXPECT_EQ(job.push_encoding, params::Encoding::kInt8);
  EXPECT_EQ(job.pull_encoding, params::Encoding::kBf16);
  EXPECT_FALSE(job.error_feedback);
}

TEST_F(ServerFlagsTest, TopKHasItsParameters) {
  const job::JobSpec plain = Parse({"--push_encoding=topk", "--pull_encoding=int4"}).config.job;
  EXPECT_EQ(plain.push_encoding, params::Encoding::TopK(64, 2));
  EXPECT_EQ(plain.feedback_decay, 0.95);
  EXPECT_EQ(plain.topk_divisor, job::TopKDivisor::kWorkers);
  EXPECT_EQ(Parse({"--push_encoding=int8"}).config.job.feedback_decay, 1.0);
  const job::JobSpec job = Parse({"--push_encoding=topk", "--topk=32", "--topk_bits=4",
                                  "--topk_divisor=senders", "--feedback_decay=1"})
                               .config.job;
  EXPECT_EQ(job.push_encoding, params::Encoding::TopK(32, 4));
  EXPECT_EQ(job.feedback_decay, 1.0);
  EXPECT_EQ(job.topk_divisor, job::TopKDivisor::kSenders);
  EXPECT_THAT(ErrorOf({"--push_encoding=topk", "--topk=2000"}),
              AllOf(HasSubstr("--topk=2000"), HasSubstr("1024")));
  EXPECT_THAT(ErrorOf({"--push_encoding=topk", "--topk_bits=3"}), HasSubstr("--topk_bits=3"));
  EXPECT_THAT(ErrorOf({"--push_encoding=topk", "--topk_divisor=all"}),
              HasSubstr("workers, senders"));
  EXPECT_THAT(ErrorOf({"--pull_encoding=topk"}), HasSubstr("only for contributions"));
}

TEST_F(ServerFlagsTest, DirectionsMayBeAveraged) {
  EXPECT_EQ(Parse({"--mode=local_sgd"}).config.job.outer_reduction, job::OuterReduction::kMean);
  EXPECT_EQ(Parse({"--mode=local_sgd", "--outer_reduction=direction"}).config.job.outer_reduction,
            job::OuterReduction::kDirection);
  EXPECT_THAT(ErrorOf({"--mode=local_sgd", "--outer_reduction=sum"}), HasSubstr("mean, direction"));
  EXPECT_THAT(
      ErrorOf({"--mode=local_sgd", "--outer_reduction=direction", "--outer_optimizer=average"}),
      HasSubstr("--outer_reduction=direction contradicts --outer_optimizer=average"));
}

TEST_F(ServerFlagsTest, ContributionsMayBeCorrectedByTheMomentum) {
  const std::string mode = "--mode=async_local_sgd";
  EXPECT_EQ(Parse({mode}).config.job.momentum_correction, job::MomentumCorrectionKind::kNone);
  EXPECT_EQ(Parse({mode, "--momentum_correction=heloco"}).config.job.momentum_correction,
            job::MomentumCorrectionKind::kHeloco);
  EXPECT_THAT(Parse({mode, "--momentum_correction=heloco"}).doubts,
              ElementsAre(HasSubstr("--outer_momentum=0.8 perhaps does not converge")));
  EXPECT_THAT(Parse({mode, "--momentum_correction=heloco", "--outer_momentum=0.7"}).doubts,
              IsEmpty());
  EXPECT_THAT(ErrorOf({mode, "--momentum_correction=on"}), HasSubstr("none, heloco"));
  EXPECT_THAT(ErrorOf({mode, "--momentum_correction=heloco", "--outer_optimizer=sgd"}),
              HasSubstr("--momentum_correction=heloco needs an outer momentum"));
}

TEST_F(ServerFlagsTest, AJobThatChoosesItsExchangeChoosesHowContributionsAreCombined) {
  for (const std::string flag : {"--outer_reduction=direction", "--momentum_correction=heloco",
                                 "--anchor=server", "--outer_optimizer=easgd"}) {
    EXPECT_THAT(ErrorOf({"--mode=auto", flag}),
                HasSubstr("the job itself chooses " + flag.substr(0, flag.find('=')) +
                          " with --mode=auto"));
  }
}

TEST_F(ServerFlagsTest, ABatchMayBeGivenInTokens) {
  const auto samples = [&](const std::vector<std::string>& flags) {
    const job::JobSpec job = Parse(flags).config.job;
    return std::pair(job.batch_size, job.global_batch_size);
  };
  using Samples = std::pair<int64_t, int64_t>;
  // The contexts of the two models have 64 and 1024 tokens.
  EXPECT_EQ(samples({"--model=gpt-nano", "--global_tokens=6400"}), Samples(0, 100));
  EXPECT_EQ(samples({"--model=gpt-nano", "--global_tokens=6450"}), Samples(0, 101));
  EXPECT_TRUE(Parse({"--model=gpt-nano", "--global_tokens=6400"})
                  .config.given.contains("global_batch_size"))
      << "a site compares it with what is upstream";
  EXPECT_EQ(samples({"--model=gpt2-124m"}), Samples(0, 512));
  EXPECT_EQ(samples({"--model=gpt2-124m", "--batch_size=4"}), Samples(4, 0));
  EXPECT_EQ(samples({"--model=gpt2-124m", "--mode=local_sgd"}), Samples(12, 0));
  EXPECT_EQ(samples({"--model=gpt2-124m", "--mode=auto"}), Samples(12, 0));
  EXPECT_EQ(samples({"--model=gpt-mini"}), Samples(12, 0));
  EXPECT_THAT(ErrorOf({"--model=gpt-nano", "--global_tokens=6400", "--batch_size=3"}),
              HasSubstr("--global_tokens=6400 contradicts --batch_size=3"));
  EXPECT_THAT(ErrorOf({"--model=mlp", "--global_tokens=6400"}),
              HasSubstr("number of tokens in a sample"));
  EXPECT_THAT(ErrorOf({"--model=gpt-nano", "--global_tokens=63"}), HasSubstr("allowed are 64"));
  EXPECT_THAT(ErrorOf({"--model=gpt-nano", "--global_tokens=-1"}), HasSubstr("allowed are 64"));
}

TEST_F(ServerFlagsTest, WithModeAutoWhatIsGivenStays) {
  const ServerConfig all = Parse({"--mode=auto"}).config;
  EXPECT_TRUE(all.open_settings.mode && all.open_settings.local_steps &&
              all.open_settings.fragments && all.open_settings.overlap &&
              all.open_settings.push_encoding && all.open_settings.pull_encoding);
  const ServerConfig some =
      Parse({"--mode=auto", "--fragments=3", "--overlap_steps=2", "--push_encoding=int8"}).config;
  EXPECT_TRUE(some.open_settings.mode && some.open_settings.local_steps &&
              some.open_settings.pull_encoding);
  EXPECT_FALSE(some.open_settings.fragments || some.open_settings.overlap ||
               some.open_settings.push_encoding);
  EXPECT_EQ(some.job.fragments, 3);
  EXPECT_EQ(some.job.overlap_steps, 2);
  EXPECT_EQ(some.job.push_encoding, params::Encoding::kInt8);
  const ServerCommandLine overlapped = Parse({"--mode=auto", "--overlap_rounds"});
  EXPECT_FALSE(overlapped.config.open_settings.overlap);
  EXPECT_THAT(overlapped.doubts, IsEmpty()) << "the outer rate is chosen, too";
  EXPECT_TRUE(Parse({"--mode=auto", "--local_steps=auto"}).config.open_settings.local_steps);
  // --error_feedback has an effect only with an encoding. With --mode=auto the job may choose one,
  // so that the flag is accepted.
  EXPECT_FALSE(Parse({"--mode=auto", "--error_feedback=false"}).config.job.error_feedback);
}

TEST_F(ServerFlagsTest, SettingsOfAnExchangeMayBeAutoOneByOne) {
  EXPECT_FALSE(Parse({"--mode=local_sgd", "--local_steps=20"}).config.open_settings.any());
  const ServerConfig steps = Parse({"--mode=local_sgd", "--local_steps=auto"}).config;
  EXPECT_TRUE(steps.open_settings.local_steps);
  EXPECT_FALSE(steps.open_settings.mode || steps.open_settings.fragments ||
               steps.open_settings.overlap || steps.open_settings.push_encoding ||
               steps.open_settings.pull_encoding);
  EXPECT_EQ(steps.job.mode, job::Mode::kLocalSgd);
  const ServerConfig pull = Parse({"--pull_encoding=auto", "--push_encoding=int8"}).config;
  EXPECT_TRUE(pull.open_settings.pull_encoding);
  EXPECT_FALSE(pull.open_settings.push_encoding);
  EXPECT_TRUE(Parse({"--mode=local_sgd", "--local_steps=20", "--overlap_steps=auto"})
                  .config.open_settings.overlap);
}

TEST_F(ServerFlagsTest, AutoIsRefusedWhereNothingCanBeChosen) {
  EXPECT_THAT(ErrorOf({"--mode=async_local_sgd", "--local_steps=auto"}),
              HasSubstr("a job of --mode=async_local_sgd cannot choose settings itself"));
  EXPECT_THAT(ErrorOf({"--mode=sync", "--local_steps=auto"}),
              HasSubstr("needs --mode=local_sgd, not sync"));
  EXPECT_THAT(ErrorOf({"--mode=sync", "--fragments=auto"}),
              HasSubstr("needs --mode=local_sgd, not sync"));
  EXPECT_THAT(ErrorOf({"--push_encoding=auto", "--topk=8"}),
              HasSubstr("the job itself chooses --topk with --push_encoding=auto"));
  EXPECT_THAT(ErrorOf({"--mode=local_sgd", "--overlap_steps=auto", "--push_encoding=auto",
                       "--merge=mix", "--topk=8"}),
              HasSubstr("--merge with --overlap_steps=auto, --topk with --push_encoding=auto"));
  EXPECT_THAT(ErrorOf({"--mode=local_sgd", "--overlap_steps=auto", "--overlap_rounds"}),
              HasSubstr("leave --overlap_rounds out"));
  EXPECT_TRUE(Parse({"--mode=auto", "--checkpoint_dir=/tmp/run", "--durability=journal"})
                  .config.durability.has_journal);
  EXPECT_THAT(ErrorOf({"--push_encoding=int5"}), HasSubstr("topk, auto"));
}

TEST_F(ServerFlagsTest, ContributionsMayBeAnchoredAtTheServers) {
  const std::string mode = "--mode=async_local_sgd";
  EXPECT_EQ(Parse({mode}).config.job.anchor, job::Anchor::kWorker);
  EXPECT_EQ(Parse({mode, "--anchor=server"}).config.job.anchor, job::Anchor::kServer);
  EXPECT_THAT(ErrorOf({mode, "--anchor=base"}), HasSubstr("worker, server"));
  EXPECT_THAT(ErrorOf({mode, "--anchor=server", "--push_encoding=int8"}),
              HasSubstr("--anchor=server contradicts --push_encoding=int8"));
}

TEST_F(ServerFlagsTest, LateContributionsHaveALowerMomentum) {
  EXPECT_EQ(Parse({"--mode=local_sgd"}).config.job.outer_momentum, 0.5);
  EXPECT_EQ(Parse({"--mode=local_sgd", "--outer_optimizer=adam"}).config.job.outer_momentum, 0.9);
  EXPECT_EQ(Parse({"--mode=async_local_sgd"}).config.job.outer_momentum, 0.8);
  EXPECT_EQ(Parse({"--mode=async_local_sgd", "--outer_momentum=0.9"}).config.job.outer_momentum,
            0.9);
}

TEST_F(ServerFlagsTest, ElasticAveragingHasARateOfItsOwn) {
  const std::vector<std::string> easgd = {"--mode=local_sgd", "--outer_optimizer=easgd"};
  const job::JobSpec job = Parse(easgd).config.job;
  EXPECT_EQ(job.outer_optimizer, job::OuterOptimizerKind::kEasgd);
  EXPECT_EQ(job.outer_learning_rate, 0.9);
  EXPECT_EQ(Parse({easgd[0], easgd[1], "--outer_learning_rate=0.7"}).config.job.outer_learning_rate,
            0.7);
  EXPECT_EQ(Parse({"--mode=local_sgd"}).config.job.outer_learning_rate, 0.7);
  EXPECT_THAT(ErrorOf({easgd[0], easgd[1], "--outer_momentum=0.9"}),
              HasSubstr("--outer_momentum has no effect"));
  EXPECT_THAT(ErrorOf({"--mode=async_local_sgd", easgd[1]}),
              HasSubstr("--outer_optimizer=easgd is not for --mode=async_local_sgd"));
}

TEST_F(ServerFlagsTest, ModelMayBeAFile) {
  const std::string path = testing::TempDir() + "/model.textproto";
  std::ofstream(path) << "name: \"tiny\" mlp { widths: 4 widths: 3 }\n";
  EXPECT_EQ(Parse({"--model=" + path}).config.job.model.name, "tiny");
  std::ofstream(path) << "mlp { widths: oops }\n";
  EXPECT_THAT(ErrorOf({"--model=" + path}),
              AllOf(HasSubstr("--model="), HasSubstr("model.textproto")));
}

TEST_F(ServerFlagsTest, FileThatPresetHidesIsDoubted) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(testing::TempDir());
  std::ofstream("gpt-nano") << "mlp { widths: 4 widths: 4 }";
  const std::vector<std::string> doubts = Parse({"--model=gpt-nano"}).doubts;
  std::filesystem::remove("gpt-nano");
  std::filesystem::current_path(before);
  EXPECT_THAT(doubts, ElementsAre(HasSubstr("--model=./gpt-nano")));
}

TEST_F(ServerFlagsTest, DropoutIsTheModelsUnlessGiven) {
  const auto dropout_of = [this](const std::vector<std::string>& arguments) {
    return std::get<params::GptSpec>(Parse(arguments).config.job.model.architecture).dropout;
  };
  EXPECT_EQ(dropout_of({"--model=gpt-nano"}), 0.0);
  EXPECT_EQ(dropout_of({"--model=gpt-nano", "--dropout=0.2"}), 0.2);
  const std::string path = testing::TempDir() + "/dropping.textproto";
  std::ofstream(path) << "name: \"tiny\" gpt { num_layers: 1 num_heads: 1 width: 4 context: 4 "
                         "vocabulary: 256 dropout: 0.3 }\n";
  EXPECT_EQ(dropout_of({"--model=" + path}), 0.3);
  EXPECT_EQ(dropout_of({"--model=" + path, "--dropout=0"}), 0.0);
  EXPECT_THAT(ErrorOf({"--dropout=1"}), AllOf(HasSubstr("--dropout=1"), HasSubstr("value < 1")));
  EXPECT_THAT(ErrorOf({"--dropout=-0.5"}), HasSubstr("--dropout=-0.5"));
  EXPECT_THAT(ErrorOf({"--model=mlp", "--dropout=0.2"}), HasSubstr("'mlp' is no gpt"));
}

TEST_F(ServerFlagsTest, WrongValuesNameFlagValueAndWhatIsAllowed) {
  EXPECT_THAT(ErrorOf({"--mode=syncc"}), AllOf(HasSubstr("--mode=syncc"), HasSubstr("local_sgd")));
  EXPECT_THAT(ErrorOf({"--rounds=-3"}), AllOf(HasSubstr("--rounds=-3"), HasSubstr("1 to")));
  EXPECT_THAT(ErrorOf({"--rounds=many"}), HasSubstr("--rounds=many"));
  EXPECT_THAT(ErrorOf({"--model=gpt-nono"}),
              AllOf(HasSubstr("--model=gpt-nono"), HasSubstr("gpt-nano")));
  EXPECT_THAT(ErrorOf({"--listen=localhost"}),
              AllOf(HasSubstr("--listen=localhost"), HasSubstr("HOST:PORT")));
  EXPECT_THAT(ErrorOf({"--listen=localhost:70000"}), HasSubstr("65535"));
  EXPECT_THAT(ErrorOf({"--shard=2"}), AllOf(HasSubstr("--shard=2"), HasSubstr("I/K")));
  EXPECT_THAT(ErrorOf({"--shard=2/2", "--coordinator=localhost:1"}), HasSubstr("0 <= I < K"));
  EXPECT_THAT(ErrorOf({"--lease=1ms"}), AllOf(HasSubstr("--lease=1ms"), HasSubstr("100ms")));
  EXPECT_THAT(ErrorOf({"--lease=10"}), HasSubstr("--lease=10"));
  EXPECT_THAT(ErrorOf({"--leader_lease=h:1/k"}),
              AllOf(HasSubstr("--leader_lease=h:1/k"), HasSubstr("etcd://HOST:PORT")));
  EXPECT_THAT(ErrorOf({"--round_timeout=1ms"}),
              AllOf(HasSubstr("--round_timeout=1ms"), HasSubstr("100ms")));
  EXPECT_THAT(ErrorOf({"--checkpoint_keep=0"}), HasSubstr("--checkpoint_keep=0"));
  EXPECT_THAT(ErrorOf({"--trace_rounds=0"}),
              AllOf(HasSubstr("--trace_rounds=0"), HasSubstr("1000")));
  EXPECT_THAT(ErrorOf({"--log_level=loud"}), HasSubstr("log_level"));
  EXPECT_THAT(ErrorOf({"--push_encoding=int2"}),
              AllOf(HasSubstr("--push_encoding=int2"), HasSubstr("fp16, int8, int4")));
  EXPECT_THAT(ErrorOf({"--robust_mean=trimmed"}),
              AllOf(HasSubstr("--robust_mean=trimmed"), HasSubstr("none, median, trimmed:K")));
  EXPECT_THAT(ErrorOf({"--pull_encoding=half"}), HasSubstr("--pull_encoding=half"));
  EXPECT_THAT(ErrorOf({"train"}), HasSubstr("\"train\" is not a flag"));
}

TEST_F(ServerFlagsTest, ARobustMeanOfTooFewIsDoubted) {
  EXPECT_THAT(Parse({"--robust_mean=trimmed:2", "--min_workers=4"}).doubts,
              ElementsAre(AllOf(HasSubstr("--robust_mean=trimmed:2 needs 5 contributions"),
                                HasSubstr("--min_workers=4 a round may have fewer"))));
  EXPECT_THAT(Parse({"--robust_mean=median", "--min_workers=2"}).doubts,
              ElementsAre(HasSubstr("--robust_mean=median needs 3 contributions")));
  EXPECT_THAT(Parse({"--robust_mean=trimmed:2", "--min_workers=5"}).doubts, IsEmpty());
  EXPECT_THAT(Parse({"--robust_mean=median", "--shard=1/2", "--coordinator=localhost:1"}).doubts,
              IsEmpty())
      << "the coordinator says it";
  EXPECT_THAT(Parse({"--mode=local_sgd", "--overlap_rounds"}).doubts,
              ElementsAre(HasSubstr("--outer_learning_rate=0.7 perhaps does not converge")));
  EXPECT_THAT(Parse({"--mode=local_sgd", "--overlap_rounds", "--min_workers=2",
                     "--outer_learning_rate=0.4"})
                  .doubts,
              IsEmpty());
  EXPECT_THAT(Parse({}).doubts, IsEmpty());
}

TEST_F(ServerFlagsTest, ALongOuterStepIsDoubted) {
  EXPECT_THAT(Parse({"--mode=local_sgd"}).doubts, IsEmpty());
  EXPECT_THAT(Parse({"--mode=local_sgd", "--outer_momentum=0.9"}).doubts,
              ElementsAre(AllOf(HasSubstr("--outer_learning_rate=0.7"),
                                HasSubstr("--outer_momentum=0.9"), HasSubstr("= 7"))));
  EXPECT_THAT(Parse({"--mode=auto"}).doubts, IsEmpty()) << "the job chooses the outer step";
  // A preset keeps its published values, although they lead to a warning.
  for (const std::string preset : {"diloco", "scaling_laws", "streaming"}) {
    EXPECT_THAT(Parse({"--mode=local_sgd", "--outer_preset=" + preset}).doubts,
                ElementsAre(HasSubstr("--outer_momentum=0.9")))
        << preset;
  }
  EXPECT_THAT(Parse({"--mode=local_sgd", "--outer_preset=sparse_loco"}).doubts, IsEmpty());
}

TEST_F(ServerFlagsTest, ContradictionsAreRefused) {
  EXPECT_EQ(ErrorOf({"--http=127.0.0.1:0"}), "");
  EXPECT_THAT(ErrorOf({"--http=8080"}), HasSubstr("--http=8080 is not HOST:PORT"));
  EXPECT_THAT(ErrorOf({"--http=10.0.0.1:8080"}),
              AllOf(HasSubstr("--http=10.0.0.1:8080"), HasSubstr("give --tls"),
                    HasSubstr("127.0.0.1:8080"), HasSubstr("--insecure")));
  EXPECT_EQ(ErrorOf({"--http=10.0.0.1:8080", "--tls", "--state_dir=/s"}), "");
  EXPECT_EQ(ErrorOf({"--http=10.0.0.1:8080", "--listen=0.0.0.0:50051", "--state_dir=/s"}), "");
  EXPECT_EQ(ErrorOf({"--http=10.0.0.1:8080", "--insecure"}), "");
  EXPECT_THAT(ErrorOf({"--http=127.0.0.1:5", "--listen=127.0.0.1:5"}),
              AllOf(HasSubstr("--http=127.0.0.1:5"), HasSubstr("--listen=127.0.0.1:5")));
  EXPECT_THAT(ErrorOf({"--http=127.0.0.1:5", "--listen=0.0.0.0:5", "--insecure"}),
              HasSubstr("--listen=0.0.0.0:5"));
  EXPECT_EQ(ErrorOf({"--http=127.0.0.1:0", "--listen=127.0.0.1:0"}), "");
  EXPECT_EQ(ErrorOf({"--http=localhost:1", "--http_names=a.example,10.0.0.1"}), "");
  EXPECT_THAT(ErrorOf({"--http=localhost:1", "--http_names=a,DNS:b"}),
              AllOf(HasSubstr("--http_names"), HasSubstr("'DNS:b'")));
  EXPECT_THAT(ErrorOf({"--http=localhost:1", "--shard=1/2", "--coordinator=localhost:2"}),
              HasSubstr("--http"));
  EXPECT_THAT(ErrorOf({"--mode=async", "--quorum=1"}), HasSubstr("--mode=async"));
  EXPECT_THAT(ErrorOf({"--mode=async", "--robust_mean=median"}),
              HasSubstr("--robust_mean=median has no meaning with --mode=async"));
  EXPECT_THAT(ErrorOf({"--batch_size=4", "--global_batch_size=8"}), HasSubstr("one of the two"));
  EXPECT_THAT(ErrorOf({"--checkpoint_every=5"}), HasSubstr("no effect without --checkpoint_dir"));
  EXPECT_THAT(ErrorOf({"--shard=1/2"}), HasSubstr("needs --coordinator"));
  EXPECT_THAT(ErrorOf({"--coordinator=localhost:1"}), HasSubstr("contradicts --shard=0/1"));
  EXPECT_EQ(ErrorOf({"--shard=1/2", "--coordinator=one:1,two:2", "--insecure"}), "");
  EXPECT_THAT(ErrorOf({"--shard=1/2", "--coordinator=one:1,one:1"}), HasSubstr("one:1 twice"));
  EXPECT_THAT(ErrorOf({"--shard=1/2", "--coordinator=localhost"}),
              AllOf(HasSubstr("--coordinator=localhost"), HasSubstr("HOST:PORT")));
  EXPECT_THAT(ErrorOf({"--init_from=w.safetensors", "--resume=old"}), HasSubstr("contradicts"));
  EXPECT_EQ(ErrorOf({"--listen=127.0.0.1:5", "--upstream=127.0.0.1:6"}), "");
  EXPECT_THAT(ErrorOf({"--listen=127.0.0.1:5", "--upstream=127.0.0.1:5"}),
              HasSubstr("--listen=127.0.0.1:5 contradicts --upstream=127.0.0.1:5: that is this"));
  EXPECT_THAT(ErrorOf({"--listen=0.0.0.0:5", "--insecure", "--upstream=root:6,localhost:5"}),
              HasSubstr("--listen=0.0.0.0:5 contradicts --upstream="));
  EXPECT_THAT(ErrorOf({"--upstream=127.0.0.1:6", "--site_name=a b"}), HasSubstr("--site_name"));
  EXPECT_THAT(ErrorOf({"--optimizer=reduce"}), HasSubstr("Use --model=client"));
  EXPECT_THAT(ErrorOf({"--optimizer=reduce", "--model=client", "--on_divergence=rollback"}),
              HasSubstr("--on_divergence=rollback contradicts --optimizer=reduce"));
}

TEST_F(ServerFlagsTest, APresetTakesThePlaceOfDefaults) {
  const job::JobSpec preset =
      Parse({"--mode=local_sgd", "--outer_preset=scaling_laws", "--min_workers=8"}).config.job;
  EXPECT_EQ(preset.outer_learning_rate, 0.8);
  EXPECT_EQ(preset.local_steps, 30);
  const job::JobSpec given =
      Parse({"--mode=local_sgd", "--outer_preset=sparse_loco", "--outer_learning_rate=0.65",
             "--local_steps=7", "--outer_optimizer=nesterov"})
          .config.job;
  EXPECT_EQ(given.outer_learning_rate, 0.65);
  EXPECT_EQ(given.local_steps, 7);
  EXPECT_EQ(given.outer_optimizer, job::OuterOptimizerKind::kNesterov);
  EXPECT_THAT(ErrorOf({"--outer_preset=diloco"}), HasSubstr("use --mode=local_sgd"));
  EXPECT_THAT(ErrorOf({"--outer_preset=x", "--mode=local_sgd"}), HasSubstr("allowed: diloco"));
}

TEST_F(ServerFlagsTest, FlagsThatCanHaveNoEffectAreRefused) {
  struct Case {
    std::vector<std::string> flag;            // the flag, with other flags that its syntax needs
    std::string counts_with;                  // flags that the error names
    std::vector<std::string> makes_it_count;  // other flags with which it has an effect
  };
  const std::vector<std::string> saves = {"--checkpoint_dir=runs"};
  const std::vector<std::string> local = {"--mode=local_sgd"};
  const std::vector<std::string> adamw = {"--optimizer=adamw"};
  const std::vector<std::string> async = {"--mode=async"};
  const std::vector<Case> cases = {
      {{"--quorum=0", "--mode=async"}, "--mode=sync", {"--mode=sync"}},
      {{"--max_rounds_ahead=-1"}, "--mode=async", async},
      {{"--max_staleness=-1"}, "--mode=async_local_sgd", {"--mode=async_local_sgd"}},
      {{"--balance=equal", "--mode=async"}, "--mode=sync, local_sgd or", local},
      {{"--robust_mean=none", "--mode=async"}, "--mode=sync or local_sgd", local},
      {{"--staleness_scaling=none"}, "--mode=async", async},
      {{"--staleness_scaling=inverse", "--mode=async", "--max_rounds_ahead=0"},
       "--max_rounds_ahead other than 0",
       {"--mode=async", "--max_rounds_ahead=1"}},
      {{"--local_steps=1"}, "--mode=local_sgd", local},
      {{"--outer_optimizer=average"}, "--mode=local_sgd", local},
      {{"--outer_learning_rate=0.5", "--outer_optimizer=average", "--mode=local_sgd"},
       "--outer_optimizer=nesterov, sgd, adam or easgd",
       {"--outer_optimizer=sgd"}},
      {{"--outer_momentum=0.9"}, "--outer_optimizer=nesterov or adam with local steps", local},
      {{"--outer_momentum=0.9", "--outer_optimizer=sgd", "--mode=local_sgd"},
       "--outer_optimizer=nesterov or adam",
       {"--outer_optimizer=adam"}},
      {{"--outer_beta2=0.9", "--outer_epsilon=0.1", "--mode=local_sgd"},
       "--outer_optimizer=adam",
       {"--outer_optimizer=adam"}},
      {{"--outer_reduction=mean"}, "--mode=local_sgd", local},
      {{"--momentum_correction=none"}, "--mode=async_local_sgd", {"--mode=async_local_sgd"}},
      {{"--anchor=worker"}, "--mode=async_local_sgd", {"--mode=async_local_sgd"}},
      {{"--error_feedback=false"}, "--push_encoding or", {"--push_encoding=int8"}},
      {{"--error_feedback"}, "--pull_encoding other than fp32", {"--pull_encoding=bf16"}},
      {{"--feedback_decay=0.9"}, "--push_encoding other than fp32", {"--push_encoding=int8"}},
      {{"--topk=32"}, "--push_encoding=topk", {"--push_encoding=topk"}},
      {{"--topk_bits=4", "--push_encoding=int8"}, "--push_encoding=topk", {"--push_encoding=topk"}},
      {{"--topk_divisor=senders"}, "--push_encoding=topk and", {"--push_encoding=topk"}},
      {{"--momentum=0.9"}, "--optimizer=momentum or nesterov", {"--optimizer=momentum"}},
      {{"--momentum=0.5", "--optimizer=sgd"}, "or nesterov", {"--optimizer=nesterov"}},
      {{"--beta1=0.8", "--optimizer=sgd"}, "--optimizer=adamw", adamw},
      {{"--beta2=0.9", "--optimizer=momentum"}, "--optimizer=adamw", adamw},
      {{"--epsilon=1e-6", "--optimizer=nesterov"}, "--optimizer=adamw", adamw},
      {{"--weight_decay=0.1", "--model=client", "--optimizer=reduce"},
       "--optimizer other than reduce",
       {"--optimizer=sgd"}},
      {{"--min_learning_rate=1e-4"}, "--lr_schedule=cosine or linear", {"--lr_schedule=linear"}},
      {{"--rollback_lr_factor=0.5"}, "--on_divergence=rollback", {"--on_divergence=rollback"}},
      {{"--poison_limit=3", "--norm_limit=0"}, "--norm_limit other than 0", {"--norm_limit=5"}},
      {{"--max_rollbacks=3"}, "--on_divergence=rollback", {"--on_divergence=rollback"}},
      {{"--checkpoint_every=5"}, "--checkpoint_dir", saves},
      {{"--checkpoint_interval=1m"}, "--checkpoint_dir", saves},
      {{"--checkpoint_keep=2"}, "--checkpoint_dir", saves},
      {{"--fallback_dir=spare"}, "--checkpoint_dir", saves},
      {{"--on_checkpoint=true"}, "--checkpoint_dir", saves},
      {{"--accept_higher_rate"}, "--checkpoint_dir", saves},
      {{"--checkpoint_cost=0.1"}, "--checkpoint_dir", saves},
      {{"--checkpoint_cost=0.1", "--checkpoint_dir=runs", "--checkpoint_interval=0"},
       "--checkpoint_interval",
       {"--checkpoint_interval=1m"}},
      {{"--resume=latest"}, "--checkpoint_dir", saves},
      {{"--resume=never"}, "--checkpoint_dir", saves},
      {{"--trace_rounds=3"}, "--trace", {"--trace=t.json"}},
      {{"--insecure"}, "other machines reach", {"--http=0.0.0.0:0"}},
      {{"--http_names=a"}, "--http", {"--http=127.0.0.1:0"}},
      {{"--insecure"}, "other machines reach", {"--listen=0.0.0.0:0"}},
      {{"--certificate_ttl=1h"}, "TLS", {"--tls", "--state_dir=s"}},
  };
  for (const Case& flag : cases) {
    const std::string name = flag.flag[0].substr(0, flag.flag[0].find('='));
    EXPECT_THAT(ErrorOf(flag.flag),
                AllOf(HasSubstr(name + " has no effect"), HasSubstr(flag.counts_with)));
    std::vector<std::string> counting = flag.flag;
    counting.insert(counting.end(), flag.makes_it_count.begin(), flag.makes_it_count.end());
    EXPECT_EQ(ErrorOf(counting), "") << name;
  }
  EXPECT_THAT(ErrorOf({"--momentum=0.5", "--trace_rounds=3"}),
              AllOf(HasSubstr("--momentum has"), HasSubstr("--trace_rounds has")));
  EXPECT_THAT(ErrorOf({"--shard=1/2", "--coordinator=localhost:1", "--trace_rounds=3"}),
              HasSubstr("--trace_rounds has no effect"));
  EXPECT_EQ(ErrorOf({"--shard=1/2", "--coordinator=localhost:1", "--momentum=0.5"}), "")
      << "only told: the coordinator decides";
}

TEST_F(ServerFlagsTest, WhatOtherMachinesReachIsTlsUnlessItIsInsecure) {
  const auto uses_tls = [this](std::vector<std::string> arguments) {
    arguments.push_back("--state_dir=state");
    return Parse(arguments).config.uses_tls();
  };
  EXPECT_TRUE(uses_tls({"--listen=0.0.0.0:50051"}));
  EXPECT_TRUE(uses_tls({"--listen=[::]:50051"}));
  EXPECT_TRUE(uses_tls({"--tls"}));
  EXPECT_TRUE(Parse({"--tls_cert=c", "--tls_key=k", "--tls_ca=a"}).config.uses_tls());
  EXPECT_FALSE(Parse({"--listen=[::1]:50051"}).config.uses_tls());
  EXPECT_FALSE(Parse({"--listen=127.0.0.2:0"}).config.uses_tls());
  EXPECT_FALSE(Parse({"--listen=0.0.0.0:50051", "--insecure"}).config.uses_tls());
  EXPECT_THAT(ErrorOf({"--tls", "--insecure"}), HasSubstr("--insecure is plain text"));
  EXPECT_THAT(ErrorOf({"--tls", "--certificate_ttl=1s"}), HasSubstr("--certificate_ttl=1s"));
  EXPECT_THAT(ErrorOf({"--tls_cert=c"}), HasSubstr("give all three"));
  EXPECT_THAT(ErrorOf({"--join=lodestar://x"}), HasSubstr("the other programs join this server"));
  EXPECT_THAT(ErrorOf({"--advertise=0.0.0.0:1"}), HasSubstr("--advertise=0.0.0.0:1"));
}

TEST_F(ServerFlagsTest, AFolderForKeysIsTakenWhereNobodyNeedsOne) {
  EXPECT_EQ(ErrorOf({"--state_dir=s"}), "") << "plain text: it is not looked at";
  EXPECT_EQ(ErrorOf({"--state_dir=s", "--tls_cert=c", "--tls_key=k", "--tls_ca=a"}), "");
}

TEST_F(ServerFlagsTest, PlainTextToAnotherMachineIsRefused) {
  const std::vector<std::string> other = {"--shard=1/2", "--coordinator=10.0.0.1:50051"};
  EXPECT_THAT(ErrorOf(other),
              AllOf(HasSubstr("--coordinator=10.0.0.1:50051"), HasSubstr("--insecure")));
  std::vector<std::string> insecure = other;
  insecure.push_back("--insecure");
  EXPECT_EQ(ErrorOf(insecure), "");
  std::vector<std::string> joined = other;
  joined.push_back("--join=lodestar://10.0.0.1:50051/L1x");
  joined.push_back("--state_dir=s");
  EXPECT_EQ(ErrorOf(joined), "");
}

TEST_F(ServerFlagsTest, OtherShardsIgnoreTrainingFlagsAndSaySo) {
  const ServerCommandLine line =
      Parse({"--shard=1/2", "--coordinator=localhost:50051", "--listen=127.0.0.1:0", "--rounds=7",
             "--checkpoint_dir=runs", "--init_from=m.safetensors"});
  EXPECT_FALSE(line.config.is_coordinator());
  EXPECT_THAT(line.ignored, ElementsAre("rounds"));
}

TEST_F(ServerFlagsTest, LifeOfCertificatesCountsWhereTheAuthorityIs) {
  const std::vector<std::string> replica = {"--replica", "--journal_dir=copies", "--tls",
                                            "--state_dir=state", "--certificate_ttl=1h"};
  EXPECT_THAT(Parse(replica).ignored, IsEmpty());
  std::vector<std::string> joining = replica;
  joining.push_back("--join=there");
  EXPECT_THAT(Parse(joining).ignored, ElementsAre("certificate_ttl"));
}

TEST_F(ServerFlagsTest, EveryServerHasALimitOfConnections) {
  const ServerCommandLine other =
      Parse({"--shard=1/2", "--coordinator=localhost:50051", "--max_connections=100"});
  EXPECT_EQ(other.config.limits.max_connections, 100);
  EXPECT_THAT(other.ignored, IsEmpty());
  EXPECT_THAT(Parse({"--replica", "--journal_dir=copies", "--max_connections=100"}).ignored,
              IsEmpty());
  EXPECT_THAT(ErrorOf({"--max_connections=7"}), HasSubstr("--max_connections=7"));
}

TEST_F(ServerFlagsTest, LimitsOfWhatOthersTakeAreFlags) {
  const limits::ServerLimits limits =
      Parse({"--max_connections_per_address=5", "--registrations_per_minute=7",
             "--connections_per_minute=11", "--streams_per_worker=9", "--staging_limit=2MiB",
             "--message_memory=100MB", "--message_timeout=5s"})
          .config.limits;
  EXPECT_EQ(limits.max_connections_per_address, 5);
  EXPECT_EQ(limits.registrations_per_minute, 7);
  EXPECT_EQ(limits.connections_per_minute, 11);
  EXPECT_EQ(limits.streams_per_worker, 9);
  EXPECT_EQ(limits.staging_bytes, 2 << 20);
  EXPECT_EQ(limits.message_bytes, 100'000'000);
  EXPECT_EQ(limits.message_timeout, absl::Seconds(5));
  EXPECT_THAT(ErrorOf({"--message_memory=1kB"}),
              HasSubstr("--message_memory=1000 is out of range"));
  EXPECT_THAT(ErrorOf({"--staging_limit=much"}), HasSubstr("--staging_limit=much: "));
}

TEST_F(ServerFlagsTest, EveryServerHasAMemoryLimitOfItsOwn) {
  const ServerCommandLine line =
      Parse({"--shard=1/2", "--coordinator=localhost:50051", "--memory_limit=5000000000"});
  EXPECT_EQ(line.config.cluster.memory_limit, 5'000'000'000);
  EXPECT_THAT(line.ignored, IsEmpty());
  EXPECT_EQ(Parse({"--memory_limit=1.5GiB"}).config.cluster.memory_limit, 3 << 29);
  EXPECT_THAT(ErrorOf({"--memory_limit=-1"}), HasSubstr("--memory_limit=-1"));
  EXPECT_THAT(ErrorOf({"--memory_limit=4G"}),
              HasSubstr("--memory_limit=4G: '4G' is not a number of bytes; write it like 500MB"));
}

TEST_F(ServerFlagsTest, CheckpointsComeByTimeAndByRounds) {
  const auto durability_of = [this](std::vector<std::string> arguments) {
    arguments.push_back("--checkpoint_dir=runs");
    return Parse(arguments).config.durability;
  };
  EXPECT_EQ(durability_of({}).checkpoint_interval, absl::Minutes(5));
  EXPECT_EQ(durability_of({"--checkpoint_interval=0"}).checkpoint_interval, absl::ZeroDuration());
  EXPECT_EQ(durability_of({"--checkpoint_every=100"}).checkpoint_interval, absl::Minutes(5));
  const DurabilityConfig both =
      durability_of({"--checkpoint_every=100", "--checkpoint_interval=1m"});
  EXPECT_EQ(both.checkpoint_every, 100);
  EXPECT_EQ(both.checkpoint_interval, absl::Minutes(1));
  EXPECT_THAT(ErrorOf({"--checkpoint_interval=1ms"}), HasSubstr("--checkpoint_interval=1ms"));
  EXPECT_THAT(ErrorOf({"--checkpoint_cost=0"}), HasSubstr("--checkpoint_cost=0"));
  EXPECT_THAT(ErrorOf({"--stop_timeout=0"}), HasSubstr("--stop_timeout=0"));
  EXPECT_THAT(ErrorOf({"--fallback_dir=runs", "--checkpoint_dir=runs"}), HasSubstr("another disk"));
  EXPECT_THAT(ErrorOf({"--fallback_dir=./runs//", "--checkpoint_dir=runs"}),
              HasSubstr("another disk"));
}

TEST_F(ServerFlagsTest, AServerOfAFurtherShardIsToldOfTheCoordinatorsFolder) {
  const DurabilityConfig durability =
      Parse({"--shard=1/2", "--coordinator=localhost:1", "--durability=journal",
             "--checkpoint_dir=/shared/run/"})
          .config.durability;
  EXPECT_EQ(durability.coordinators_folder, "/shared/run");
  EXPECT_EQ(durability.checkpoint_dir, "") << "it saves what the coordinator asks for";
  EXPECT_EQ(Parse({"--checkpoint_dir=/shared/run"}).config.durability.coordinators_folder, "");
}

TEST_F(ServerFlagsTest, EndLostWorkersTakesLeaseOrConnection) {
  EXPECT_FALSE(Parse({}).config.cluster.ends_unconnected);
  EXPECT_FALSE(Parse({"--end_lost_workers=lease"}).config.cluster.ends_unconnected);
  EXPECT_TRUE(Parse({"--end_lost_workers=connection"}).config.cluster.ends_unconnected);
  EXPECT_THAT(ErrorOf({"--end_lost_workers=never"}), HasSubstr("--end_lost_workers=never"));
}

TEST_F(ServerFlagsTest, AJournalIsBesideTheCheckpointsUnlessItHasAFolder) {
  const auto durability_of = [this](std::vector<std::string> arguments) {
    return Parse(arguments).config.durability;
  };
  EXPECT_FALSE(durability_of({"--checkpoint_dir=runs"}).has_journal);
  const std::string journal = "--durability=journal";
  EXPECT_TRUE(durability_of({journal, "--checkpoint_dir=runs"}).has_journal);
  EXPECT_EQ(durability_of({journal, "--checkpoint_dir=runs/"}).journal_dir,
            std::filesystem::absolute("runs/journal"));
  EXPECT_EQ(
      durability_of({journal, "--checkpoint_dir=runs", "--journal_dir=/fast//disk/"}).journal_dir,
      "/fast/disk");
  EXPECT_THAT(ErrorOf({journal}), HasSubstr("--durability=journal needs --checkpoint_dir"));
  EXPECT_THAT(ErrorOf({"--durability=always"}), HasSubstr("allowed: checkpoint, journal"));
  EXPECT_EQ(
      durability_of({journal, "--checkpoint_dir=runs", "--journal_limit=2GB"}).journal_limit_bytes,
      2'000'000'000);
  EXPECT_THAT(ErrorOf({journal, "--checkpoint_dir=runs", "--journal_limit=much"}),
              HasSubstr("--journal_limit=much"));
  EXPECT_THAT(ErrorOf({"--checkpoint_dir=runs", "--journal_limit=2GB"}),
              HasSubstr("--journal_limit has no effect"));
  EXPECT_THAT(ErrorOf({"--checkpoint_dir=runs", "--journal_dir=fast"}),
              AllOf(HasSubstr("--journal_dir has no effect"), HasSubstr("--durability=journal")));
  const std::vector<std::string> other = {"--shard=1/2", "--coordinator=localhost:1", journal};
  EXPECT_THAT(ErrorOf(other), HasSubstr("needs --journal_dir"));
  std::vector<std::string> with_folder = other;
  with_folder.push_back("--journal_dir=fast");
  EXPECT_EQ(durability_of(with_folder).journal_dir, std::filesystem::absolute("fast"));
  EXPECT_THAT(Parse(with_folder).ignored, IsEmpty());
}

TEST_F(ServerFlagsTest, AReplicaTakesFoldersAndAnAddress) {
  const ServerCommandLine line =
      Parse({"--replica", "--checkpoint_dir=run", "--listen=127.0.0.1:7", "--rounds=3"});
  EXPECT_TRUE(line.config.is_replica);
  EXPECT_EQ(line.config.durability.checkpoint_dir, std::filesystem::absolute("run"));
  EXPECT_EQ(line.config.durability.journal_dir, std::filesystem::absolute("run/journal"));
  EXPECT_THAT(line.ignored, ElementsAre("rounds"));
  EXPECT_EQ(Parse({"--replica", "--journal_dir=copies"}).config.durability.checkpoint_dir, "");
  EXPECT_THAT(ErrorOf({"--replica"}), HasSubstr("--journal_dir"));
  EXPECT_TRUE(Parse({"--replica", "--journal_dir=copies", "--listen=0.0.0.0:7", "--state_dir=s"})
                  .config.uses_tls());
}

TEST_F(ServerFlagsTest, AReplicaWithALeaderLeaseIsGivenAllThatTheServerIs) {
  const std::vector<std::string> standby = {"--replica", "--checkpoint_dir=run",
                                            "--leader_lease=etcd://h:1/k", "--rounds=3"};
  EXPECT_THAT(ErrorOf(standby), HasSubstr("--durability=journal"));
  std::vector<std::string> whole = standby;
  whole.emplace_back("--durability=journal");
  const ServerCommandLine line = Parse(whole);
  EXPECT_TRUE(line.config.is_replica);
  EXPECT_EQ(line.config.job.schedule.total_rounds, 3);
  EXPECT_THAT(line.ignored, IsEmpty());
  whole.emplace_back("--resume=never");
  EXPECT_THAT(ErrorOf(whole), HasSubstr("--resume contradicts --replica with --leader_lease"));
}

TEST_F(ServerFlagsTest, AJournalMayHaveAReplica) {
  const std::vector<std::string> journal = {"--durability=journal", "--checkpoint_dir=run"};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> arguments = journal;
    arguments.push_back(flag);
    return arguments;
  };
  EXPECT_EQ(Parse(with("--journal_replica=localhost:7")).config.durability.journal_replica,
            "localhost:7");
  EXPECT_TRUE(Parse(with("--promote")).config.durability.may_promote);
  EXPECT_THAT(ErrorOf(with("--journal_replica=backup")), HasSubstr("--journal_replica=backup"));
  EXPECT_THAT(ErrorOf(with("--journal_replica=backup:0")), HasSubstr("--journal_replica=backup:0"));
  EXPECT_THAT(ErrorOf({"--promote"}), HasSubstr("--durability=journal"));
  EXPECT_THAT(ErrorOf({"--journal_replica=localhost:7"}), HasSubstr("--durability=journal"));
}

TEST_F(ServerFlagsTest, ResumeIsAWordOrAPath) {
  EXPECT_EQ(Parse({}).config.durability.resume, ResumePolicy::kLatest);
  const auto policy_of = [this](const std::string& resume) {
    return Parse({"--checkpoint_dir=runs", resume}).config.durability.resume;
  };
  EXPECT_EQ(policy_of("--resume=latest"), ResumePolicy::kLatest);
  EXPECT_EQ(policy_of("--resume=never"), ResumePolicy::kNever);
  const ServerConfig config = Parse({"--resume=runs/round-00000010"}).config;
  EXPECT_EQ(config.durability.resume, ResumePolicy::kPath);
  EXPECT_EQ(config.durability.resume_path, std::filesystem::absolute("runs/round-00000010"));
}

TEST_F(ServerFlagsTest, FoldersOfCheckpointsAreAbsolute) {
  const DurabilityConfig durability =
      Parse({"--checkpoint_dir=runs/../runs/1/", "--fallback_dir=spare"}).config.durability;
  EXPECT_EQ(durability.checkpoint_dir, std::filesystem::absolute("runs/1"));
  EXPECT_EQ(durability.fallback_dir, std::filesystem::absolute("spare"));
}

TEST_F(ServerFlagsTest, EvaluationsAreBoundedUnlessAllHeldOutSamplesAreWanted) {
  EXPECT_EQ(Parse({}).config.job.eval_samples, 10'000);
  EXPECT_EQ(Parse({"--eval_samples=0"}).config.job.eval_samples, 0);
}

}  // namespace
}  // namespace lodestar::server
