// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/authority_rpc.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/logging/logging.h"
#include "common/process/version.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"
#include "proto/enrollment.h"
#include "proto/status_mapping.h"
#include "proto/transport_security.h"
#include "server/membership/registration_limit.h"

namespace lodestar::rpc {
namespace {

// Number of threads for enrolments. A peer that sends nothing can hold up its thread for
// kEnrollmentTimeout. One origin cannot hold up all threads: see kMaxEnrolling.
constexpr int kEnrollmentThreads = 32;
// Maximum number of enrolments that wait for a thread or have one: in all, and of one origin.
constexpr limits::OriginPlaces::Config kMaxEnrolling = {.in_all = 64, .of_origin = 8};
constexpr absl::Duration kEnrollmentTimeout = absl::Seconds(10);
constexpr size_t kMaxRequestBytes = 16 << 10;
constexpr size_t kMaxNameBytes = 64;
constexpr int kMaxRoles = 8;

absl::Status CheckRequestSize(const std::string& request) {
  if (request.size() <= kMaxRequestBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the certificate request has ", request.size(),
                                                 " bytes; allowed are at most ", kMaxRequestBytes));
}

// Returns from when the requested certificate is valid. `Request` is EnrollRequest or RenewRequest.
template <typename Request>
authority::CertificateAuthority::Beginning BeginningFor(const Request& request) {
  return request.begins_early() ? authority::CertificateAuthority::Beginning::kWithAuthority
                                : authority::CertificateAuthority::Beginning::kNow;
}

v1::Token ToProto(const authority::TokenRecord& token) {
  v1::Token proto;
  proto.set_id(token.id);
  proto.set_role(std::string(security::RoleName(token.terms.role)));
  proto.set_name(token.terms.name);
  proto.set_created_unix_ms(absl::ToUnixMillis(token.created));
  proto.set_expires_unix_ms(absl::ToUnixMillis(token.expires()));
  proto.set_uses(static_cast<uint32_t>(token.uses));
  proto.set_max_uses(static_cast<uint32_t>(token.terms.max_uses));
  proto.set_is_revoked(token.is_revoked);
  return proto;
}

v1::PeerIdentity ToProto(const authority::IdentityRecord& record) {
  v1::PeerIdentity proto;
  proto.set_role(std::string(security::RoleName(record.identity.role)));
  proto.set_name(record.identity.name);
  proto.set_id(record.identity.id);
  proto.set_enrolled_unix_ms(absl::ToUnixMillis(record.enrolled));
  proto.set_expires_unix_ms(absl::ToUnixMillis(record.expires));
  proto.set_token_id(record.token_id);
  if (record.is_revoked()) proto.set_revoked_unix_ms(absl::ToUnixMillis(record.revoked));
  return proto;
}

}  // namespace

AuthorityRpc::AuthorityRpc(Deps deps)
    : deps_(std::move(deps)),
      enrolling_(kMaxEnrolling),
      enrollments_(kEnrollmentThreads, "enrol") {}

void AuthorityRpc::TakeEnrollment(int descriptor, std::string peer) {
  const bool is_ipv6 = absl::StartsWith(peer, "[");
  limits::OriginPlaces::Place place =
      enrolling_.Take(membership::PeerOrigin(absl::StrCat(is_ipv6 ? "ipv6:" : "ipv4:", peer)));
  if (place == nullptr) {
    deps_.refusals->Count(limits::LimitReached::kEnrolments);
    close(descriptor);
    return;
  }
  enrollments_.Schedule([this, descriptor, place = std::move(place), peer = std::move(peer)] {
    security::Identity identity;
    std::string token_id;
    const auto answer = [&](const v1::EnrollRequest& request) -> absl::StatusOr<v1::EnrollReply> {
      if (request.wire_version() != process::kWireVersion) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the client speaks wire version ", request.wire_version(), ", but the server speaks ",
            process::kWireVersion, "; use the same release"));
      }
      RETURN_IF_ERROR(CheckRequestSize(request.certificate_request()));
      authority::TokenLedger::Enrolment enrolment;
      enrolment.token_id = request.token_id();
      enrolment.secret = request.secret();
      enrolment.name = PeerText(request.name(), kMaxNameBytes);
      enrolment.fallback_name = PeerText(request.fallback_name(), kMaxNameBytes);
      for (int i = 0; i < std::min(request.roles_size(), kMaxRoles); ++i) {
        enrolment.roles.push_back(PeerText(request.roles(i), kMaxNameBytes));
      }
      ASSIGN_OR_RETURN(
          authority::CertificateAuthority::Issued issued,
          deps_.authority->Enroll(enrolment, request.certificate_request(), BeginningFor(request)));
      identity = issued.identity;
      token_id = enrolment.token_id;
      if (!issued.replaced_ids.empty()) {
        logging::LogInfo("audit: {} id={} has taken the place of id={}", security::TextOf(identity),
                         identity.id, absl::StrJoin(issued.replaced_ids, " "));
        deps_.evict(identity.name, "another machine has joined under its name");
      }
      v1::EnrollReply reply;
      reply.set_certificate(std::move(issued.certificate));
      reply.set_authority(deps_.authority->certificate());
      return reply;
    };
    absl::StatusOr<security::Credentials> own = security::ReadCredentials(deps_.own);
    absl::Status served = own.status();
    if (own.ok()) {
      served = wire::ServeEnrollment(descriptor, *own, kEnrollmentTimeout, answer);
    } else {
      close(descriptor);
    }
    if (!identity.name.empty()) {
      logging::LogInfo("audit: {} has enrolled from peer={} id={} token={}",
                       security::TextOf(identity), peer, identity.id, token_id);
    }
    if (!served.ok()) {
      logging::LogInfo("audit: enrolment from peer={} failed: {}", peer, served.message());
      deps_.refusals->Count(limits::LimitReached::kFailedEnrolments);
    }
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::Answer(
    grpc::CallbackServerContext* context,
    std::function<absl::Status(const std::optional<security::Identity>& caller)> work) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  absl::StatusOr<std::optional<security::Identity>> caller =
      wire::CallerOf(*context->auth_context());
  if (!caller.ok()) {
    reactor->Finish(wire::ToGrpcStatus(caller.status()));
    return reactor;
  }
  disk_.Schedule([reactor, caller = *std::move(caller), work = std::move(work)] {
    reactor->Finish(wire::ToGrpcStatus(work(caller)));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AuthorityRpc::Renew(grpc::CallbackServerContext* context,
                                              const v1::RenewRequest* request,
                                              v1::RenewReply* reply) {
  return Answer(context, [this, request, reply](const auto& caller) -> absl::Status {
    if (!caller.has_value())
      return absl::UnauthenticatedError(
          "the connection is plain text, so it has no certificate that could be renewed; use TLS");
    RETURN_IF_ERROR(CheckRequestSize(request->certificate_request()));
    ASSIGN_OR_RETURN(
        authority::CertificateAuthority::Issued issued,
        deps_.authority->Renew(*caller, request->certificate_request(), BeginningFor(*request)));
    reply->set_certificate(std::move(issued.certificate));
    reply->set_authority(deps_.authority->certificate());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::ListRevoked(grpc::CallbackServerContext* context,
                                                    const v1::ListRevokedRequest*,
                                                    v1::ListRevokedReply* reply) {
  return Answer(context, [this, reply](const auto&) -> absl::Status {
    for (auto& [id, text] : deps_.authority->Revoked()) {
      v1::RevokedIdentity* const identity = reply->add_identities();
      identity->set_id(id);
      identity->set_text(text);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::CreateToken(grpc::CallbackServerContext* context,
                                                    const v1::CreateTokenRequest* request,
                                                    v1::CreateTokenReply* reply) {
  return Answer(context, [this, request, reply](const auto& caller) -> absl::Status {
    authority::TokenTerms terms;
    ASSIGN_OR_RETURN(terms.role, security::ParseRole("--role", request->role()));
    terms.ttl = absl::Milliseconds(request->ttl_ms());
    terms.max_uses = request->max_uses();
    terms.name = request->name();
    ASSIGN_OR_RETURN(authority::CertificateAuthority::NewToken token,
                     deps_.authority->CreateToken(terms));
    logging::LogInfo("audit: {} has created token {} role={} ttl={} max_uses={} name={}",
                     wire::CallerText(caller), token.id, security::RoleName(terms.role),
                     absl::FormatDuration(terms.ttl), terms.max_uses, terms.name);
    reply->set_token_id(token.id);
    reply->set_secret(token.secret);
    reply->set_authority_sha256(deps_.authority->sha256());
    reply->set_address(deps_.address());
    reply->set_expires_unix_ms(absl::ToUnixMillis(token.expires));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::ListTokens(grpc::CallbackServerContext* context,
                                                   const v1::ListTokensRequest*,
                                                   v1::ListTokensReply* reply) {
  return Answer(context, [this, reply](const auto&) -> absl::Status {
    const authority::TokenLedger ledger = deps_.authority->ledger();
    for (const auto& [id, token] : ledger.tokens()) {
      *reply->add_tokens() = ToProto(token);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::RevokeToken(grpc::CallbackServerContext* context,
                                                    const v1::RevokeTokenRequest* request,
                                                    v1::RevokeTokenReply*) {
  return Answer(context, [this, request](const auto& caller) -> absl::Status {
    RETURN_IF_ERROR(deps_.authority->RevokeToken(request->id()));
    logging::LogInfo("audit: {} has revoked token {}", wire::CallerText(caller),
                     PeerText(request->id(), kMaxNameBytes));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::ListIdentities(grpc::CallbackServerContext* context,
                                                       const v1::ListIdentitiesRequest*,
                                                       v1::ListIdentitiesReply* reply) {
  return Answer(context, [this, reply](const auto&) -> absl::Status {
    const authority::TokenLedger ledger = deps_.authority->ledger();
    for (const auto& [id, record] : ledger.identities()) {
      *reply->add_identities() = ToProto(record);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AuthorityRpc::Revoke(grpc::CallbackServerContext* context,
                                               const v1::RevokeRequest* request,
                                               v1::RevokeReply* reply) {
  return Answer(context, [this, request, reply](const auto& caller) -> absl::Status {
    ASSIGN_OR_RETURN(const security::CertificateFacts own, security::CheckCredentials(deps_.own));
    if (request->name() == own.identity.name) {
      return absl::FailedPreconditionError(absl::StrCat(
          "'", request->name(),
          "' is the coordinator itself and cannot be revoked; stop it instead (psctl stop)"));
    }
    if (request->name() == security::kLocalOperator) {
      return absl::FailedPreconditionError(
          absl::StrCat("'", security::kLocalOperator,
                       "' is the server's user on its own machine, and gets a new certificate with "
                       "the server's next start. Change who can log in as that user instead"));
    }
    const std::string because = absl::StrCat("by ", wire::CallerText(caller));
    ASSIGN_OR_RETURN(const authority::TokenLedger::Revocation revocation,
                     deps_.authority->Revoke(request->name(), because, request->with_tokens()));
    const int num_lives =
        deps_.evict(request->name(), absl::StrCat("its identity was revoked ", because));
    logging::LogInfo(
        "audit: {} has revoked the identity '{}': certificates={} workers_ended={} "
        "tokens_ended=[{}] tokens_open=[{}]",
        wire::CallerText(caller), request->name(), revocation.num_identities, num_lives,
        absl::StrJoin(revocation.ended_tokens, " "), absl::StrJoin(revocation.open_tokens, " "));
    reply->set_num_identities(static_cast<uint32_t>(revocation.num_identities));
    reply->set_num_lives(static_cast<uint32_t>(num_lives));
    for (const std::string& id : revocation.ended_tokens) reply->add_ended_tokens(id);
    for (const std::string& id : revocation.open_tokens) reply->add_open_tokens(id);
    return absl::OkStatus();
  });
}

}  // namespace lodestar::rpc
