// SPDX-License-Identifier: Apache-2.0

#include "proto/grpc_environment.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/runtime/status_macros.h"
#include "common/security/openssl_handles.h"

namespace lodestar::wire {
namespace {

// Checks a list of polling strategies. gRPC uses the first name in the list that it knows. It also
// knows "none", but aborts if it uses it.
absl::Status CheckPollStrategy(absl::string_view value) {
  constexpr std::array<absl::string_view, 4> kKnown = {"epoll1", "poll", "all", "none"};
  const std::vector<absl::string_view> names = absl::StrSplit(value, ',');
  const auto first = std::find_first_of(names.begin(), names.end(), kKnown.begin(), kKnown.end());
  if (first != names.end() && *first != "none") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "GRPC_POLL_STRATEGY=", value,
      ": gRPC cannot wait for connections with this strategy; unset the variable, or set it to "
      "epoll1, poll or all"));
}

absl::Status CheckCipherSuites(const std::string& value) {
  const security::OwnedSslContext context(SSL_CTX_new(TLS_method()));
  if (context != nullptr && SSL_CTX_set_cipher_list(context.get(), value.c_str()) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "GRPC_SSL_CIPHER_SUITES=", value, ": OpenSSL knows no cipher of this list (",
      security::OpensslError(),
      "), so no connection could be made; unset the variable, or set it to names of `openssl "
      "ciphers`"));
}

}  // namespace

absl::Status CheckGrpcEnvironment() {
  if (const char* const value = std::getenv("GRPC_POLL_STRATEGY"); value != nullptr) {
    RETURN_IF_ERROR(CheckPollStrategy(value));
  }
  if (const char* const value = std::getenv("GRPC_SSL_CIPHER_SUITES"); value != nullptr) {
    RETURN_IF_ERROR(CheckCipherSuites(value));
  }
  return absl::OkStatus();
}

void ExitUnlessTransportWorks(absl::string_view program) {
  security::ExitUnlessOpensslWorks(program);
  const absl::Status environment = CheckGrpcEnvironment();
  if (environment.ok()) return;
  std::fputs(absl::StrCat(program, ": ", environment.message(), "\n").c_str(), stderr);
  constexpr int kExitFailed = 1;
  std::_Exit(kExitFailed);
}

}  // namespace lodestar::wire
