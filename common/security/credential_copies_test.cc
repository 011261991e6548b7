// SPDX-License-Identifier: Apache-2.0

#include "common/security/credential_copies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/runtime/file_io.h"
#include "common/security/testing/test_authority.h"
#include "common/testing/status_matchers.h"

namespace lodestar::security {
namespace {

const Identity kServer{Role::kServer, "shard-0", "01"};

std::string TextIn(const std::string& path) {
  const auto text = ReadWholeFile(path, 1 << 20);
  EXPECT_OK(text);
  return text.value_or("");
}

class CredentialCopiesTest : public ::testing::Test {
 protected:
  // Returns what the copies hold. Reads each of them by its path, as gRPC does.
  static Credentials Held(const CredentialFiles& paths) {
    return {.key = TextIn(paths.key),
            .certificate = TextIn(paths.certificate),
            .authority = TextIn(paths.authority)};
  }
  Credentials Written() const { return Held(files_); }
  static void Write(const std::string& path, absl::string_view text) {
    std::ofstream(path, std::ios::trunc) << text;
  }

  const TestAuthority authority_;
  const CredentialFiles files_ = authority_.FilesFor(kServer);
};

TEST_F(CredentialCopiesTest, WholeFilesAreCopiedUnderTheSamePaths) {
  CredentialCopies copies(files_);
  const CredentialFiles paths = copies.paths();
  EXPECT_NE(paths.key, files_.key);
  EXPECT_EQ(Held(paths), Written());
  EXPECT_FALSE(copies.Refresh()) << "nothing has changed";
  authority_.Renew(files_, kServer);
  EXPECT_TRUE(copies.Refresh());
  EXPECT_EQ(copies.paths(), paths);
  EXPECT_EQ(Held(paths), Written());
}

TEST_F(CredentialCopiesTest, DamagedFilesLeaveTheCopiesAsTheyWere) {
  CredentialCopies copies(files_);
  const Credentials before = Written();
  const CredentialFiles other = authority_.FilesFor(kServer);
  for (const std::string& path : {files_.key, files_.certificate, files_.authority}) {
    for (const std::string& damage :
         {std::string(), std::string("<html>502</html>"),
          TextIn(path).substr(0, TextIn(path).size() / 2), TextIn(other.certificate)}) {
      if (path == files_.authority && damage == TextIn(other.certificate)) continue;
      const std::string whole = TextIn(path);
      Write(path, damage);
      EXPECT_FALSE(copies.Refresh()) << path << ": " << damage;
      EXPECT_EQ(Held(copies.paths()), before);
      Write(path, whole);
    }
    const std::string away = path + ".away";
    std::filesystem::rename(path, away);
    EXPECT_FALSE(copies.Refresh()) << path << " is missing";
    EXPECT_EQ(Held(copies.paths()), before);
    std::filesystem::rename(away, path);
  }
}

TEST_F(CredentialCopiesTest, AKeyCountsOnceItsCertificateIsThere) {
  CredentialCopies copies(files_);
  const Credentials before = Written();
  const CredentialFiles other = authority_.FilesFor(kServer);
  Write(files_.certificate, TextIn(other.certificate));
  EXPECT_FALSE(copies.Refresh());
  EXPECT_EQ(Held(copies.paths()), before);
  Write(files_.key, TextIn(other.key));
  EXPECT_TRUE(copies.Refresh());
  EXPECT_EQ(Held(copies.paths()), Held(other));
}

TEST_F(CredentialCopiesTest, FilesThatWereNeverWholeAreNotEmpty) {
  const Credentials whole = Written();
  Write(files_.certificate, "");
  CredentialCopies copies(files_);
  EXPECT_NE(Held(copies.paths()).certificate, "") << "gRPC would end the process";
  Write(files_.certificate, whole.certificate);
  EXPECT_TRUE(copies.Refresh());
  EXPECT_EQ(Held(copies.paths()), whole);
}

}  // namespace
}  // namespace lodestar::security
