// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/life_secret.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"
#include "common/security/certificates.h"
#include "common/security/identity.h"
#include "proto/bulk_options.h"
#include "proto/transport_security.h"

namespace lodestar::rpc {
namespace {

constexpr int kSecretBytes = 16;

}  // namespace

absl::StatusOr<LifeClaim> LifeClaim::Of(const grpc::CallbackServerContext& context) {
  ASSIGN_OR_RETURN(const std::optional<security::Identity> caller,
                   wire::CallerOf(*context.auth_context()));
  const auto& metadata = context.client_metadata();
  const auto entry = metadata.find(wire::kLifeSecretKey);
  std::string secret;
  if (entry != metadata.end()) secret.assign(entry->second.data(), entry->second.size());
  return LifeClaim(caller.has_value() ? caller->name : "", std::move(secret));
}

std::string LifeClaim::SecretOf(absl::string_view key, const messages::WorkerLife& life) const {
  // The name comes last, so that different fields never make the same text.
  const std::string text =
      absl::StrCat(life.worker.value(), "/", life.incarnation.value(), "/", holder_);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int digest_bytes = 0;
  const unsigned char* made =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &digest_bytes);
  LODESTAR_CHECK(made != nullptr && digest_bytes >= kSecretBytes) << "HMAC-SHA256";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), kSecretBytes));
}

absl::Status LifeClaim::Check(absl::string_view key, const messages::WorkerLife& life) const {
  if (key.empty()) return absl::OkStatus();
  if (secret_.empty()) {
    return absl::UnauthenticatedError(
        absl::StrCat("the call has no secret in its metadata ", wire::kLifeSecretKey,
                     "; a worker's calls must have RegisterReply.life_secret there"));
  }
  if (security::AreEqualSecrets(secret_, SecretOf(key, life))) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "this server does not accept the secret of worker ", life.worker.value(), " (incarnation ",
      life.incarnation.value(), "): it is of another job, or of an earlier start of this job"));
}

}  // namespace lodestar::rpc
