// SPDX-License-Identifier: Apache-2.0

// DirectConnection connects to a ReplicaStore in the same process. A test can cut the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/runtime/status_macros.h"
#include "server/durability/replica/replica_connection.h"
#include "server/durability/replica/replica_store.h"

namespace lodestar::replica {

// Called before each call and each change. After an error, the connection no longer works, and all
// calls return that error.
using LinkHook = std::function<absl::Status()>;

class DirectConnection final : public ReplicaConnection {
 public:
  DirectConnection(const std::shared_ptr<ReplicaStore>& store, LinkHook hook)
      : store_(store.get()), link_(std::make_shared<Link>()) {
    link_->store = store;
    link_->hook = std::move(hook);
  }

  absl::StatusOr<TermGrant> BeginTerm(const TermRequest& request) override {
    RETURN_IF_ERROR(link_->Pass());
    term_ = {request.shard, request.term, request.connection};
    absl::StatusOr<TermGrant> grant = store_->BeginTerm(request);
    // The replica has begun the term, but the answer may be lost on its way.
    RETURN_IF_ERROR(link_->Pass());
    return grant;
  }
  absl::Status CheckTerm() override {
    RETURN_IF_ERROR(link_->Pass());
    return store_->CheckTerm(term_);
  }
  absl::StatusOr<std::vector<FileEntry>> ListFiles() override {
    RETURN_IF_ERROR(link_->Pass());
    return store_->ListFiles(term_);
  }
  absl::Status ReadFile(const MirroredPath& path,
                        absl::FunctionRef<absl::Status(absl::string_view block)> take) override {
    RETURN_IF_ERROR(link_->Pass());
    return store_->ReadFile(term_, path, take);
  }
  absl::StatusOr<std::unique_ptr<ReplicaLane>> OpenLane() override {
    RETURN_IF_ERROR(link_->Pass());
    ASSIGN_OR_RETURN(std::unique_ptr<ReplicaStore::Lane> lane, store_->OpenLane(term_));
    return std::make_unique<Lane>(std::move(lane), link_);
  }
  void Cancel() override { link_->status = absl::UnavailableError("the connection was ended"); }

 private:
  struct Link {
    std::weak_ptr<ReplicaStore> store;
    LinkHook hook;
    absl::Status status;

    absl::Status Pass() {
      if (store.expired()) status.Update(absl::UnavailableError("the replica has ended"));
      if (status.ok() && hook != nullptr) status = hook();
      return status;
    }
  };

  class Lane final : public ReplicaLane {
   public:
    Lane(std::unique_ptr<ReplicaStore::Lane> lane, std::shared_ptr<Link> link)
        : lane_(std::move(lane)), link_(std::move(link)) {}

    absl::Status Send(FileChange change) override {
      RETURN_IF_ERROR(link_->Pass());
      link_->status.Update(lane_->Carry(change));
      return link_->status;
    }
    absl::StatusOr<uint64_t> Ask() override {
      RETURN_IF_ERROR(link_->Pass());
      return 0;
    }
    absl::Status Await(uint64_t /*question*/) override { return link_->Pass(); }

   private:
    const std::unique_ptr<ReplicaStore::Lane> lane_;
    const std::shared_ptr<Link> link_;
  };

  ReplicaStore* const store_;  // the store of the link
  const std::shared_ptr<Link> link_;
  ReplicaStore::Term term_;
};

}  // namespace lodestar::replica
