// SPDX-License-Identifier: Apache-2.0

#include "common/security/openssl_handles.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace lodestar::security {
namespace {

TEST(OpensslHandlesDeathTest, ConfigurationWithoutADefaultProviderEndsTheProcess) {
  const std::string path = testing::TempDir() + "/no_default_provider.cnf";
  std::ofstream(path) << "openssl_conf = all\n[all]\nproviders = these\n[these]\nnull = one\n"
                         "[one]\nactivate = 1\n";
  // OpenSSL reads its configuration once per process, and this process may have read it already. So
  // the test runs in a new process.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("OPENSSL_CONF", path.c_str(), /*overwrite=*/1);
        ExitUnlessOpensslWorks("psctl");
      },
      testing::ExitedWithCode(1), "^psctl: .*OPENSSL_CONF=.*no_default_provider.cnf");
}

TEST(OpensslHandlesDeathTest, UsualConfigurationIsTaken) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ExitUnlessOpensslWorks("psctl");
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace lodestar::security
