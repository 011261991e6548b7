// Between generated messages and native types of common/: a job and what it is made of. With
// convert_cluster.h and chunk_codec.h the code that knows both vocabularies; what only servers say
// to each other, and status, is converted in server/rpc.
//
// FromProto checks everything: an enum of a newer version, a negative or huge count and a missing
// part are InvalidArgument and name the field.
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

v1::ModelSpec ToProto(const ModelSpec& spec);
absl::StatusOr<ModelSpec> FromProto(const v1::ModelSpec& spec);

// Initialisers do not travel: a layout from the wire starts its tensors at zero. A program that
// initialises weights builds the layout from the model spec and compares.
v1::Layout ToProto(const Layout& layout);
// Errors also: InvalidArgument if `hash` is given and is not that of the tensors.
absl::StatusOr<Layout> FromProto(const v1::Layout& layout);

v1::JobSpec ToProto(const JobSpec& job);
// Runs ValidateJobSpec(), too.
absl::StatusOr<JobSpec> FromProto(const v1::JobSpec& job);

v1::ProposedSettings ToProto(const ProposedSettings& proposed);
// Error: InvalidArgument for an optimizer that this version does not know.
absl::StatusOr<ProposedSettings> FromProto(const v1::ProposedSettings& proto);

v1::JobLoss ToProto(const JobLoss& loss);
JobLoss FromProto(const v1::JobLoss& loss);

v1::Encoding ToProto(Encoding::Kind encoding);
// Returns the kind without its parameters: JobSpec has those.
absl::StatusOr<Encoding::Kind> FromProto(v1::Encoding encoding);

v1::ContributionKind ToProto(ContributionKind kind);
absl::StatusOr<ContributionKind> FromProto(v1::ContributionKind kind);

}  // namespace lodestar::wire
