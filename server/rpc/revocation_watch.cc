// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/revocation_watch.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/logging/logging.h"
#include "common/net/address_list.h"
#include "common/runtime/peer_text.h"
#include "proto/authority_service.grpc.pb.h"
#include "proto/bulk_options.h"
#include "proto/status_mapping.h"

namespace lodestar::rpc {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr size_t kMaxReasonBytes = 512;

}  // namespace

RevocationWatch::RevocationWatch(wire::TransportSecurity security, const std::string& servers,
                                 absl::Duration interval)
    : security_(std::move(security)),
      servers_(absl::StrSplit(servers, ',')),
      interval_(interval),
      thread_([this] { Run(); }) {}

RevocationWatch::~RevocationWatch() {
  {
    absl::MutexLock lock(&mutex_);
    is_over_ = true;
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
}

absl::Status RevocationWatch::CheckNotRevoked(const security::Identity& identity) const {
  absl::MutexLock lock(&mutex_);
  const auto found = revoked_.find(identity.id);
  return found == revoked_.end() ? absl::OkStatus() : absl::UnauthenticatedError(found->second);
}

absl::Status RevocationWatch::AskAt(const std::string& server) {
  const auto stub = v1::AuthorityService::NewStub(grpc::CreateCustomChannel(
      server, security_.channel_credentials(), wire::ControlChannelArguments()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(kTimeout));
  {
    absl::MutexLock lock(&mutex_);
    if (is_over_) return absl::OkStatus();
    call_ = &context;
  }
  v1::ListRevokedReply reply;
  const absl::Status answer = wire::FromGrpcStatus(stub->ListRevoked(&context, {}, &reply));
  absl::MutexLock lock(&mutex_);
  call_ = nullptr;
  if (!answer.ok()) return answer;
  revoked_.clear();
  for (const v1::RevokedIdentity& identity : reply.identities()) {
    revoked_.emplace(identity.id(), PeerText(identity.text(), kMaxReasonBytes));
  }
  return absl::OkStatus();
}

void RevocationWatch::Run() {
  logging::ChangeLogger logger;
  while (true) {
    const absl::Status asked =
        net::AskCoordinator(servers_, [this](const std::string& server) { return AskAt(server); });
    if (asked.ok()) {
      logger.Forget("revoked");
    } else {
      logger.Log(logging::LogLevel::kWarn, "revoked",
                 absl::StrCat(absl::IsUnauthenticated(asked)
                                  ? "the coordinator refuses this server: "
                                  : "cannot ask the coordinator for revoked certificates: ",
                              asked.message(), "; trying again"));
    }
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&is_over_), interval_)) return;
  }
}

}  // namespace lodestar::rpc
