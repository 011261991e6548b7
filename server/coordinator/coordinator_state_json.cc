// SPDX-License-Identifier: Apache-2.0

#include "server/coordinator/coordinator_state_json.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/archive/forms.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "server/coordinator/faults/quarantine.h"

namespace lodestar::coordinator {
namespace {

// A data set in a checkpoint of version 0.1.0. In such a checkpoint, the position of its next
// sample is a part of the ledger.
struct InFirstVersion {
  template <typename Archive>
  static void Fields(Archive& archive, checkpoints::DataSetState& set) {
    archive("fingerprint", set.info.fingerprint);
    archive("num_train_samples", archive::As<archive::AtLeast<0>>(set.info.num_train_samples));
    archive("num_heldout_samples", archive::As<archive::AtLeast<0>>(set.info.num_heldout_samples));
    archive("tokens_per_sample", archive::As<archive::AtLeast<0>>(set.info.tokens_per_sample));
    archive("own_partition", set.info.own_partition);
    archive.Optional("claimant", set.claimant);
  }
};

// The fields in a checkpoint's manifest. Records of the journal have other fields.
struct InManifest {
  template <typename Archive>
  static void Fields(Archive& archive, checkpoints::DataSetState& set) {
    InFirstVersion::Fields(archive, set);
    archive("next_sample", archive::As<archive::AtLeast<0>>(set.next_sample));
  }

  template <typename Archive>
  static void Fields(Archive& archive, checkpoints::LedgerState& ledger) {
    archive("next_round", archive::As<archive::AtLeast<0>>(ledger.next_round));
    archive.Optional("lost_rounds", archive::As<archive::AtLeast<0>>(ledger.lost_rounds));
    archive("next_sample", archive::As<archive::AtLeast<0>>(ledger.next_sample));
    archive("trained_samples", archive::As<archive::AtLeast<0>>(ledger.trained_samples));
    archive("final_evaluation_round",
            archive::As<archive::AtLeast<-1>>(ledger.final_evaluation_round));
    if (archive.Has("rollbacks", /*is_written=*/true)) {
      archive("rollbacks", archive::As<archive::AtLeast<0>>(ledger.rollbacks));
      archive("learning_rate_scale", archive::As<archive::AtLeast<0>>(ledger.learning_rate_scale));
    }
    archive.Optional("scale_by_operators",
                     archive::As<archive::AtLeast<0>>(ledger.scale_by_operators));
    // A checkpoint of version 0.1.0 has one data set, that of the worker that joined first. The
    // position in this data set is next_sample of the ledger.
    std::optional<checkpoints::DataSetState> first;
    if (!archive.Legacy("dataset", archive::As<InFirstVersion>(first))) {
      archive("data_sets", archive::As<InManifest>(ledger.data_sets));
    } else if (first.has_value() && ledger.next_sample > 0) {
      first->next_sample = ledger.next_sample;
      ledger.data_sets = {*std::move(first)};
    }
  }

  template <typename Archive>
  static void Fields(Archive& archive, membership::MembershipState::Name& name) {
    archive("name", name.name);
    archive("id", archive::As<archive::AtLeast<1>>(name.id));
    bool is_gone = !name.was_alive;
    archive.Flag("gone", is_gone);
    if constexpr (Archive::kReads) name.was_alive = !is_gone;
  }

  template <typename Archive>
  static void Fields(Archive& archive, membership::MembershipState& membership) {
    archive("last_incarnation", membership.last_incarnation);
    archive.Optional("last_id", membership.last_id);
    archive("view", membership.view);
    archive("workers", archive::As<InManifest>(membership.names));
  }

  template <typename Archive>
  static void Fields(Archive& archive, checkpoints::ProgressState& progress) {
    archive("trained_ms", archive::As<archive::MillisecondsForm>(progress.trained_time));
    archive("train_loss", archive::As<archive::FiniteForm>(progress.loss.train));
    archive("train_loss_round", archive::As<archive::AtLeast<0>>(progress.loss.train_round));
    archive("heldout_loss", archive::As<archive::FiniteForm>(progress.loss.heldout));
    archive("heldout_accuracy", archive::As<archive::FiniteForm>(progress.loss.heldout_accuracy));
    archive("heldout_round", archive::As<archive::AtLeast<0>>(progress.loss.heldout_round));
  }

  template <typename Archive>
  static void Fields(Archive& archive, faults::Quarantine::Entry& entry) {
    archive("name", entry.name);
    archive("reason", entry.reason);
    archive.Flag("is_identity", entry.is_identity);
    archive.Flag("is_by_operator", entry.is_by_operator);
  }

  // A checkpoint of an earlier release has no progress, shuts no worker out and is not paused.
  template <typename Archive>
  static void Fields(Archive& archive, checkpoints::CoordinatorState& state) {
    archive("server_incarnation", state.server_incarnation);
    archive("ledger", archive::As<InManifest>(state.ledger));
    archive("membership", archive::As<InManifest>(state.membership));
    archive.Optional("progress", archive::As<InManifest>(state.progress));
    archive.Optional("quarantine", archive::As<InManifest>(state.orders.quarantine));
    archive.Sparse("pause", state.orders.pause);
  }
};

absl::Status Check(const checkpoints::CoordinatorState& state) {
  if (state.ledger.lost_rounds > state.ledger.next_round) {
    return archive::InField("ledger.lost_rounds",
                            archive::NotA(absl::StrCat("at most ", state.ledger.next_round)));
  }
  if (state.progress.trained_time < absl::ZeroDuration()) {
    return archive::InField("progress.trained_ms", archive::NotA("at least 0"));
  }
  if (state.orders.quarantine.size() > faults::Quarantine::kMaxNames) {
    return archive::InField(
        "quarantine",
        archive::NotA(absl::StrCat("a list of at most ", faults::Quarantine::kMaxNames)));
  }
  return absl::OkStatus();
}

absl::StatusOr<checkpoints::CoordinatorState> Parse(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  checkpoints::CoordinatorState state;
  RETURN_IF_ERROR(archive::ReadRecord(json, archive::As<InManifest>(state)));
  RETURN_IF_ERROR(Check(state));
  return state;
}

}  // namespace

std::string CoordinatorStateToJson(const checkpoints::CoordinatorState& state) {
  return FormatSortedJson(archive::BasicJsonWriter<SortedJson>().WriteAs<InManifest>(state));
}

absl::StatusOr<checkpoints::CoordinatorState> CoordinatorStateFromJson(absl::string_view text) {
  absl::StatusOr<checkpoints::CoordinatorState> state = Parse(text);
  if (state.ok()) return state;
  return absl::DataLossError(absl::StrCat("the coordinator's state: ", state.status().message(),
                                          "; use an older checkpoint"));
}

}  // namespace lodestar::coordinator
