// SPDX-License-Identifier: Apache-2.0

#include "proto/peer_texts.h"

#include <string>
#include <vector>

#include "common/runtime/peer_text.h"

namespace lodestar::wire {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Maximum length of a text, which limits the time of PeerText().
constexpr size_t kMaxTextBytes = 1 << 14;

void EscapeField(const FieldDescriptor* field, Message* message) {
  const Reflection* reflection = message->GetReflection();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    if (!field->is_repeated()) return EscapeTexts(reflection->MutableMessage(message, field));
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      EscapeTexts(reflection->MutableRepeatedMessage(message, field, i));
    }
  } else if (field->type() == FieldDescriptor::TYPE_STRING) {
    if (!field->is_repeated()) {
      return reflection->SetString(message, field,
                                   PeerText(reflection->GetString(*message, field), kMaxTextBytes));
    }
    for (int i = 0; i < reflection->FieldSize(*message, field); ++i) {
      reflection->SetRepeatedString(
          message, field, i,
          PeerText(reflection->GetRepeatedString(*message, field, i), kMaxTextBytes));
    }
  }
}

}  // namespace

void EscapeTexts(Message* message) {
  std::vector<const FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  for (const FieldDescriptor* field : fields) EscapeField(field, message);
}

}  // namespace lodestar::wire
