// SPDX-License-Identifier: Apache-2.0

#include "common/security/credential_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/time/clock.h"
#include "common/output/output_file.h"
#include "common/runtime/file_io.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Optional;

const Identity kServer{Role::kServer, "shard-0", "01"};

class CredentialWatchTest : public ::testing::Test {
 protected:
  // Returns `files` with the mark that this program does not renew them.
  static CredentialFiles OfOthers(CredentialFiles files) {
    files.is_kept = false;
    return files;
  }
  // Waits for kLookInterval of simulated time, and returns the message of the next check.
  std::optional<std::string> Look() {
    now_ += CredentialWatch::kLookInterval;
    return watch_.Look(now_);
  }
  // Replaces the watched certificate with the certificate in `of`. The key and the authority stay.
  void PutCertificate(const CredentialFiles& of) {
    const auto certificate = ReadWholeFile(of.certificate, 1 << 20);
    ASSERT_OK(certificate);
    ASSERT_OK(output::WriteFileAtomically(files_.certificate, *certificate));
  }

  const TestAuthority authority_;
  const CredentialFiles files_ = OfOthers(authority_.FilesFor(kServer));
  absl::Time now_ = absl::Now();
  CredentialWatch watch_{files_};
};

TEST_F(CredentialWatchTest, FilesThatBelongTogetherAreToldOfOnce) {
  EXPECT_EQ(Look(), std::nullopt);
  authority_.Renew(files_, kServer);
  EXPECT_EQ(Look(), "");
  EXPECT_EQ(Look(), std::nullopt);
}

TEST_F(CredentialWatchTest, ACertificateWithoutItsKeyIsToldOfOnce) {
  EXPECT_EQ(Look(), std::nullopt);
  PutCertificate(authority_.FilesFor(kServer));
  EXPECT_EQ(Look(), std::nullopt) << "the key may follow at once";
  EXPECT_THAT(Look(), Optional(HasSubstr(files_.key)));
  EXPECT_EQ(Look(), std::nullopt);
  authority_.Renew(files_, kServer);
  EXPECT_EQ(Look(), std::nullopt);
  EXPECT_EQ(Look(), "");
  PutCertificate(authority_.FilesFor(kServer));
  EXPECT_EQ(Look(), std::nullopt);
  EXPECT_THAT(Look(), Optional(HasSubstr(files_.key))) << "it was right in between";
}

TEST_F(CredentialWatchTest, EachEmptyFileIsToldOfByName) {
  for (const std::string& path : {files_.key, files_.certificate, files_.authority}) {
    const auto text = ReadWholeFile(path, 1 << 20);
    ASSERT_OK(text);
    std::ofstream(path, std::ios::trunc);
    Look();
    EXPECT_THAT(Look(), Optional(HasSubstr(path)));
    std::ofstream(path) << *text;
    Look();
    EXPECT_EQ(Look(), "");
  }
}

TEST_F(CredentialWatchTest, FilesAreReadNowAndThenOnly) {
  EXPECT_EQ(Look(), std::nullopt);
  ForgetCertificate(files_);
  EXPECT_EQ(Look(), std::nullopt);
  EXPECT_EQ(watch_.Look(now_ + CredentialWatch::kLookInterval / 2), std::nullopt);
  EXPECT_THAT(Look(), Optional(HasSubstr(files_.certificate)));
}

TEST_F(CredentialWatchTest, AnEndIsToldOfBeforeAndWhenItComes) {
  const absl::Time until = now_ + absl::Hours(1);  // the certificate is valid for two hours
  now_ = until - absl::Minutes(20);
  EXPECT_EQ(Look(), std::nullopt);
  EXPECT_EQ(Look(), "");
  now_ = until - absl::Minutes(10);
  EXPECT_EQ(Look(), std::nullopt);
  EXPECT_THAT(Look(), Optional(AllOf(HasSubstr(files_.certificate), HasSubstr("ends at"))));
  now_ = until + absl::Minutes(1);
  EXPECT_EQ(Look(), std::nullopt);
  EXPECT_THAT(Look(), Optional(AllOf(HasSubstr(files_.certificate), HasSubstr("expired"))));
}

TEST_F(CredentialWatchTest, WhatThisProgramRenewsHasNoNotice) {
  CredentialFiles kept = files_;
  kept.is_kept = true;
  CredentialWatch watch(kept);
  now_ += absl::Minutes(55);
  EXPECT_EQ(watch.Look(now_), std::nullopt);
  EXPECT_EQ(watch.Look(now_ + CredentialWatch::kLookInterval), "");
}

}  // namespace
}  // namespace lodestar::security
