// SPDX-License-Identifier: Apache-2.0

#include "common/security/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "common/security/secret_file.h"
#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Credentials NewCredentials() {
  const Validity validity{absl::Now() - absl::Minutes(1), absl::Now() + absl::Hours(1)};
  Authority authority;
  authority.key = NewPrivateKey();
  authority.certificate = MakeAuthority(authority.key, validity).value_or("");
  Credentials credentials;
  credentials.key = NewPrivateKey();
  credentials.authority = authority.certificate;
  credentials.certificate =
      IssueCertificate(authority, MakeCertificateRequest(credentials.key).value_or(""),
                       {Role::kWorker, "box", "1"}, validity)
          .value_or("");
  return credentials;
}

TEST(CredentialsTest, AFolderHoldsThem) {
  const std::string folder = ::testing::TempDir() + "/credentials_good/sub";
  const Credentials credentials = NewCredentials();
  ASSERT_OK(WriteCredentials(folder, credentials));
  const auto facts = CheckCredentials(CredentialFilesIn(folder));
  ASSERT_OK(facts);
  EXPECT_EQ(facts->identity.name, "box");
  const auto back = ReadCredentials(CredentialFilesIn(folder));
  ASSERT_OK(back);
  EXPECT_EQ(back->certificate, credentials.certificate);
  EXPECT_EQ(back->authority, credentials.authority);
}

TEST(CredentialsTest, ReplacesTheFolderAsAWhole) {
  const std::string above = ::testing::TempDir() + "/credentials_replaced";
  const std::string folder = above + "/worker";
  ASSERT_OK(WriteCredentials(folder, NewCredentials()));
  ASSERT_OK(WriteSecretFile(folder + "/token", "of the one before"));
  const Credentials second = NewCredentials();
  ASSERT_OK(WriteCredentials(folder, second));
  EXPECT_OK(CheckCredentials(CredentialFilesIn(folder)));
  EXPECT_EQ(ReadCredentials(CredentialFilesIn(folder))->key, second.key);
  EXPECT_FALSE(std::filesystem::exists(folder + "/token"));
  const std::filesystem::directory_iterator entries(above);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "nothing is left beside it";
}

TEST(CredentialsTest, WhatDoesNotFitIsNamed) {
  const std::string folder = ::testing::TempDir() + "/credentials_bad";
  Credentials credentials = NewCredentials();
  credentials.key = NewPrivateKey();
  ASSERT_OK(WriteCredentials(folder, credentials));
  const CredentialFiles files = CredentialFilesIn(folder);
  EXPECT_THAT(CheckCredentials(files).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("key.pem and "), HasSubstr("certificate.pem: "))));
  credentials.certificate = "none";
  ASSERT_OK(WriteCredentials(folder, credentials));
  EXPECT_THAT(CheckCredentials(files).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("certificate.pem: ")));
  credentials = NewCredentials();
  credentials.authority += credentials.authority.substr(0, credentials.authority.size() / 2);
  ASSERT_OK(WriteCredentials(folder, credentials));
  EXPECT_THAT(CheckCredentials(files).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("authority.pem: ")))
      << "its second certificate is cut short";
  ASSERT_EQ(chmod(files.key.c_str(), 0644), 0);
  EXPECT_THAT(CheckCredentials(files).status(), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(CheckCredentials(CredentialFilesIn(folder + "/missing")).status(),
              StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace lodestar::security
