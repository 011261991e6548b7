// SPDX-License-Identifier: Apache-2.0

// The fields of a job in one table. The table gives flags with their help, settings of checkpoints,
// ranges, the wire form, and how sites and resumed jobs treat each field. The functions of
// job_spec.h say which fields contradict each other.
//
// A new field needs a member of JobSpec, a row of the table, and a field of the same meaning in
// proto/job.proto.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/job/job_spec.h"

namespace lodestar::job {

// A field's value. Enums, encodings and the robust mean are texts. All whole numbers except
// uint64_t are int64_t.
using JobValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

struct NumberRange {
  enum class Kind : uint8_t {
    kAny,         // no limits in the table; ValidateJobSpec() may check more
    kWhole,       // whole numbers from `lowest` to `highest`
    kReal,        // numbers from `lowest` to `highest`
    kZeroOrReal,  // numbers from `lowest` to `highest`, or 0
    kBelowOne,    // 0 <= value < 1
  };
  Kind kind = Kind::kAny;
  double lowest = 0.0;
  double highest = 0.0;
};

struct JobField {
  enum class Type : uint8_t { kBool, kInt32, kInt64, kUint64, kDouble, kText };
  // Meaning of a field that is missing or zero in a message. kIsValue: the zero value itself.
  // kIsDefault: the default of JobSpec. kIsRefused: an error.
  enum class Absent : uint8_t { kIsValue, kIsDefault, kIsRefused };
  // The side that sets the field for the workers of a site. kUpstream: the servers upstream. kOwn:
  // the site itself. kOwnWithLocalSteps: the site if its workers make local steps, and otherwise
  // the servers upstream.
  enum class Site : uint8_t { kUpstream, kOwn, kOwnWithLocalSteps };

  absl::string_view name;   // name of the flag, without dashes, and of the setting in checkpoints
  absl::string_view group;  // title above the flag in --helpfull
  // Default of the flag, if it differs from that of JobSpec.
  absl::string_view flag_default = {};
  bool takes_auto = false;  // the flag takes "auto", and the job then chooses the value
  NumberRange range = {};
  // Path of the field in the message JobSpec. Empty means that its conversion is written by hand.
  absl::string_view wire = {};
  Absent absent = Absent::kIsValue;
  // Another field of the message. If set, `absent` applies if that field is absent, and this
  // field's own absence does not matter. Empty means that `absent` applies if this field is absent.
  absl::string_view absent_with = {};
  // Returns false if no value of the field has an effect in `job`. Null means that every value has
  // an effect.
  bool (*counts)(const JobSpec& job) = nullptr;
  absl::string_view counts_with = {};  // flags with which the field would have an effect
  Site site = Site::kUpstream;
  // True means that a site cannot go on if the servers upstream have changed the field since the
  // site began.
  bool is_site_state = false;
  bool is_inner_state = false;  // the state of a worker's inner optimizer depends on the field
  bool is_exchange = false;     // true: OpenSettings may let the job choose the value
  bool is_planned = false;      // `psctl plan` uses the field
  // Only the coordinator uses the field. Servers and workers only see its effects.
  bool is_of_coordinator = false;
  absl::string_view help;

  // The members type, get and set are derived from the member of JobSpec.
  Type type = Type::kText;
  JobValue (*get)(const JobSpec& job) = nullptr;
  // Sets the field of `job`. Requires: the value has this type. Errors: InvalidArgument naming the
  // flag and what is allowed.
  absl::Status (*set)(const JobField& field, const JobValue& value, JobSpec& job) = nullptr;
};

// Titles of groups of flags.
inline constexpr absl::string_view kModelGroup = "Model and first weights";
inline constexpr absl::string_view kModeGroup = "Mode and membership";
inline constexpr absl::string_view kWireGroup = "Wire";
inline constexpr absl::string_view kOptimizerGroup = "Optimizer";
inline constexpr absl::string_view kLengthGroup = "Length, batches, evaluation";

// Value of --dropout that means the dropout of the model's own spec.
inline constexpr double kDropoutOfModel = -1.0;

// Returns all fields except the model itself, in the order of checkpoints. Fields are also set in
// this order, because --topk needs --push_encoding.
absl::Span<const JobField> JobFields();
// Returns the field with this name, or null.
const JobField* FindJobField(absl::string_view name);

// Returns the value as text. Numbers read back to the same bits.
std::string TextOf(const JobValue& value);
// Sets a field from a text of TextOf() or of a flag. Errors: InvalidArgument naming the flag,
// `text` and what is wanted.
absl::Status SetFromText(const JobField& field, absl::string_view text, JobSpec& job);

// Checks the range of every field. Errors: InvalidArgument naming the first flag whose number is
// out of range.
absl::Status CheckFieldRanges(const JobSpec& job);

}  // namespace lodestar::job
