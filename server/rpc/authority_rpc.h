// AuthorityRpc serves AuthorityService (proto/authority_service.proto) and enrolments: tokens,
// certificates, and the identities that were revoked. What an operator does is logged with the
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
    // What this server shows, and where others reach it.
    CredentialFiles own;
    std::function<std::string()> address;
    // Ends the lives of the workers of an identity; how many there were.
    std::function<int(absl::string_view identity, absl::string_view reason)> evict;
    std::shared_ptr<limits::RefusalCounts> refusals = std::make_shared<limits::RefusalCounts>();
  };

  explicit AuthorityRpc(Deps deps);

  // A connection that begins as an enrolment does; its descriptor is taken over. Never blocks: one
  // too many is closed. Thread-safe.
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
  // Carries out what waits for the disk away from gRPC's threads, and answers with its outcome.
  grpc::ServerUnaryReactor* Answer(
      grpc::CallbackServerContext* context,
      std::function<absl::Status(const std::optional<Identity>& caller)> work);

  const Deps deps_;
  limits::OriginPlaces enrolling_;
  ThreadPool disk_{1, "authority"};
  ThreadPool enrollments_;  // each blocks for its peer
};

}  // namespace lodestar::rpc
