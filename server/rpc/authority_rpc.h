// SPDX-License-Identifier: Apache-2.0

// AuthorityRpc serves AuthorityService (proto/authority_service.proto) and enrolments: tokens,
// certificates, and the identities that were revoked. Actions of operators are logged with the
// operator's name.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/runtime/executor.h"
#include "common/security/credentials.h"
#include "proto/authority_service.grpc.pb.h"
#include "server/authority/certificate_authority.h"
#include "server/limits/origin_places.h"
#include "server/limits/refusal_counts.h"

namespace lodestar::rpc {

class AuthorityRpc final : public v1::AuthorityService::CallbackService {
 public:
  struct Deps {
    authority::CertificateAuthority* authority = nullptr;
    // Certificate files of this server, and the address at which other programs reach it.
    security::CredentialFiles own;
    std::function<std::string()> address;
    // Ends the incarnations of the workers of an identity. Returns the number of incarnations that
    // it has ended.
    std::function<int(absl::string_view identity, absl::string_view reason)> evict;
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
  };

  explicit AuthorityRpc(Deps deps);

  // Takes over a connection that begins with firewall::kEnrollmentWord. `descriptor` is its socket.
  // Never blocks: if there are too many enrolments, closes the connection. Thread-safe.
  void TakeEnrollment(int descriptor, std::string peer);

  grpc::ServerUnaryReactor* Renew(grpc::CallbackServerContext* context,
                                  const v1::RenewRequest* request, v1::RenewReply* reply) override;
  grpc::ServerUnaryReactor* ListRevoked(grpc::CallbackServerContext* context,
                                        const v1::ListRevokedRequest* request,
                                        v1::ListRevokedReply* reply) override;
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenReply* reply) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const v1::ListTokensRequest* request,
                                       v1::ListTokensReply* reply) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::RevokeTokenReply* reply) override;
  grpc::ServerUnaryReactor* ListIdentities(grpc::CallbackServerContext* context,
                                           const v1::ListIdentitiesRequest* request,
                                           v1::ListIdentitiesReply* reply) override;
  grpc::ServerUnaryReactor* Revoke(grpc::CallbackServerContext* context,
                                   const v1::RevokeRequest* request,
                                   v1::RevokeReply* reply) override;

 private:
  // Runs `work`, which waits for the disk, on another thread than gRPC's, and answers the call with
  // its result.
  grpc::ServerUnaryReactor* Answer(
      grpc::CallbackServerContext* context,
      std::function<absl::Status(const std::optional<security::Identity>& caller)> work);

  const Deps deps_;
  limits::OriginPlaces enrolling_;
  ThreadPool disk_{1, "authority"};
  ThreadPool enrollments_;  // each task blocks for its peer
};

}  // namespace lodestar::rpc
