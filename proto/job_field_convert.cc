// SPDX-License-Identifier: Apache-2.0

#include "proto/job_field_convert.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/job/job_fields.h"
#include "common/runtime/check.h"
#include "common/runtime/status_macros.h"

namespace lodestar::wire {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Returns the field at a path such as "optimizer.momentum".
const FieldDescriptor* FieldAt(absl::string_view path) {
  const google::protobuf::Descriptor* type = v1::JobSpec::descriptor();
  const FieldDescriptor* field = nullptr;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    if (field != nullptr) type = field->message_type();
    field = type->FindFieldByName(std::string(part));
    LODESTAR_CHECK(field != nullptr) << "JobSpec has no " << path;
  }
  return field;
}

// Returns the message that has the field at `path`: `proto` or a message in it.
Message* OwnerOf(absl::string_view path, v1::JobSpec& proto) {
  const size_t dot = path.find('.');
  if (dot == absl::string_view::npos) return &proto;
  return proto.GetReflection()->MutableMessage(&proto, FieldAt(path.substr(0, dot)));
}
const Message& OwnerOf(absl::string_view path, const v1::JobSpec& proto) {
  const size_t dot = path.find('.');
  if (dot == absl::string_view::npos) return proto;
  return proto.GetReflection()->GetMessage(proto, FieldAt(path.substr(0, dot)));
}

// Returns the prefix of the enum's value names, such as "MODE_" if value 0 is MODE_UNSPECIFIED.
std::string PrefixOf(const FieldDescriptor& field) {
  const std::string& name = field.enum_type()->FindValueByNumber(0)->name();
  constexpr absl::string_view kUnspecified = "UNSPECIFIED";
  LODESTAR_CHECK(absl::EndsWith(name, kUnspecified)) << name;
  return name.substr(0, name.size() - kUnspecified.size());
}

void SetField(const FieldDescriptor& field, const job::JobValue& value, Message& owner) {
  const google::protobuf::Reflection& reflection = *owner.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&owner, &field, std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&owner, &field, static_cast<int32_t>(std::get<int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.SetInt64(&owner, &field, std::get<int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&owner, &field, std::get<uint64_t>(value));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.SetDouble(&owner, &field, std::get<double>(value));
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* const kind = field.enum_type()->FindValueByName(
          absl::StrCat(PrefixOf(field), absl::AsciiStrToUpper(std::get<std::string>(value))));
      return reflection.SetEnumValue(&owner, &field, kind == nullptr ? 0 : kind->number());
    }
    default:
      LODESTAR_CHECK(false) << field.full_name();
  }
}

// Returns the field's value. Errors: InvalidArgument if an enum has a value that this release does
// not know.
absl::StatusOr<job::JobValue> GetField(absl::string_view path, const FieldDescriptor& field,
                                       const Message& owner) {
  const google::protobuf::Reflection& reflection = *owner.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(owner, &field);
    case FieldDescriptor::CPPTYPE_INT32:
      return int64_t{reflection.GetInt32(owner, &field)};
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection.GetInt64(owner, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.GetUInt64(owner, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(owner, &field);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = reflection.GetEnumValue(owner, &field);
      const EnumValueDescriptor* const kind = field.enum_type()->FindValueByNumber(number);
      if (kind == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, " is ", number,
                         ", which this version does not know; use the same version on both sides"));
      }
      return absl::AsciiStrToLower(kind->name().substr(PrefixOf(field).size()));
    }
    default:
      LODESTAR_CHECK(false) << field.full_name();
      return absl::InternalError(field.full_name());
  }
}

// Returns true if the message lacks the field at `path`. A field that cannot be absent counts as
// lacking if it is 0, unspecified or empty.
bool IsAbsent(absl::string_view path, const v1::JobSpec& proto) {
  const FieldDescriptor& field = *FieldAt(path);
  const Message& owner = OwnerOf(path, proto);
  const google::protobuf::Reflection& reflection = *owner.GetReflection();
  if (field.has_presence()) return !reflection.HasField(owner, &field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return reflection.GetEnumValue(owner, &field) == 0;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
    return reflection.GetDouble(owner, &field) == 0.0;
  }
  return !reflection.HasField(owner, &field);
}

}  // namespace

void FieldsToProto(const job::JobSpec& job, v1::JobSpec& proto) {
  const job::JobSpec defaults;
  for (const job::JobField& field : job::JobFields()) {
    if (field.wire.empty()) continue;
    const FieldDescriptor& wire = *FieldAt(field.wire);
    const job::JobValue value = field.get(job);
    if (wire.has_presence() && value == field.get(defaults)) continue;
    SetField(wire, value, *OwnerOf(field.wire, proto));
  }
}

absl::Status FieldsFromProto(const v1::JobSpec& proto, job::JobSpec& job) {
  for (const job::JobField& field : job::JobFields()) {
    if (field.wire.empty()) continue;
    const bool may_be_absent = field.absent != job::JobField::Absent::kIsValue;
    if (may_be_absent &&
        IsAbsent(field.absent_with.empty() ? field.wire : field.absent_with, proto)) {
      if (field.absent == job::JobField::Absent::kIsDefault) continue;
      return absl::InvalidArgumentError(absl::StrCat(field.wire, " is 0 (unspecified); set it"));
    }
    ASSIGN_OR_RETURN(const job::JobValue value,
                     GetField(field.wire, *FieldAt(field.wire), OwnerOf(field.wire, proto)));
    RETURN_IF_ERROR(field.set(field, value, job));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::wire
