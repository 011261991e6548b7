// SPDX-License-Identifier: Apache-2.0

// Converts between generated messages and native types of common/: a job and its parts.
// convert_cluster.h and chunk_codec.h convert the messages of workers. Messages between servers,
// and the status, are converted in server/rpc.
//
// FromProto() checks everything: an enum of a newer version, a negative or huge count and a missing
// part are InvalidArgument, and the error names the field.
#pragma once

#include "absl/status/statusor.h"
#include "common/job/job_loss.h"
#include "common/job/job_spec.h"
#include "common/job/proposed_settings.h"
#include "common/messages/contribution.h"
#include "common/params/bucket_plan.h"
#include "common/params/layout.h"
#include "common/params/model_spec.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "proto/parameter_service.pb.h"

namespace lodestar::wire {

v1::ModelSpec ToProto(const params::ModelSpec& spec);
absl::StatusOr<params::ModelSpec> FromProto(const v1::ModelSpec& spec);

// Converts a layout without its initializers: in a layout that was converted back, all tensors
// start at zero. To initialize weights, a program builds the layout from the model spec, and
// compares it with the one from the message.
v1::Layout ToProto(const params::Layout& layout);
// Converts a layout. Errors also: InvalidArgument if `hash` is set and does not match the tensors.
absl::StatusOr<params::Layout> FromProto(const v1::Layout& layout);

v1::JobSpec ToProto(const job::JobSpec& job);
// Converts a job, and checks it with ValidateJobSpec().
absl::StatusOr<job::JobSpec> FromProto(const v1::JobSpec& job);

v1::ProposedSettings ToProto(const job::ProposedSettings& proposed);
// Converts proposed settings. Errors: InvalidArgument for an optimizer that this version does not
// know.
absl::StatusOr<job::ProposedSettings> FromProto(const v1::ProposedSettings& proto);

v1::JobLoss ToProto(const job::JobLoss& loss);
job::JobLoss FromProto(const v1::JobLoss& loss);

v1::Encoding ToProto(params::Encoding::Kind encoding);
// Returns the kind of an encoding. Its parameters are in JobSpec.
absl::StatusOr<params::Encoding::Kind> FromProto(v1::Encoding encoding);

v1::ContributionKind ToProto(messages::ContributionKind kind);
absl::StatusOr<messages::ContributionKind> FromProto(v1::ContributionKind kind);

}  // namespace lodestar::wire
