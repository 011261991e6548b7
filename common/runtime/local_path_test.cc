// SPDX-License-Identifier: Apache-2.0

#include "common/runtime/local_path.h"

#include <string>

#include "common/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lodestar {
namespace {

using ::testing::HasSubstr;

TEST(LocalPathTest, PassesPathsOfThisMachine) {
  for (const char* path : {"", "run", "/shared/run 1", "./s3:/bucket/run", "../a", "a:b", "C:/run",
                           "it's", "a$", "cost$5", "a@b", "/a@b:c", "round-00000020", "latest",
                           "gpt-nano", "~backup", "/a/~/b", "/mnt/a:/b"}) {
    EXPECT_OK(CheckLocalPath(path)) << path;
  }
}

TEST(LocalPathTest, RefusesUrlsAndOtherMachines) {
  for (const char* path : {"s3://bucket/run", "s3:/bucket/run", "gs://b/r", "hdfs://name:9000/run",
                           "az://b", "abfss://b@c/r", "https://host/run", "nas:/export/run",
                           "nas.local:/export", "root@10.0.0.9:/srv/run", "ann@nas:backups"}) {
    EXPECT_THAT(CheckLocalPath(path),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--on_checkpoint")))
        << path;
  }
  EXPECT_THAT(CheckLocalPath("file:///run"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("file://")));
}

TEST(LocalPathTest, RefusesWhatAShellHasNotTakenAway) {
  for (const char* path :
       {"~", "~/run", "$HOME/run", "${HOME}/run", "/data/$USER", "$(pwd)/run", "\"run\"", "'run'",
        "run\"", "run ", " run", "run\r", "run\n", "\trun"}) {
    EXPECT_THAT(CheckLocalPath(path), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)))
        << path;
  }
}

TEST(LocalPathTest, FlagKeepsThePathAndSaysWhatIsWrong) {
  LocalPath path;
  std::string error;
  EXPECT_TRUE(AbslParseFlag("runs/1", &path, &error));
  EXPECT_EQ(AbslUnparseFlag(path), "runs/1");
  EXPECT_FALSE(AbslParseFlag("s3://b", &path, &error));
  EXPECT_THAT(error, HasSubstr("s3://b"));
}

}  // namespace
}  // namespace lodestar
