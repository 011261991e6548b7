// SPDX-License-Identifier: Apache-2.0

#include "proto/peer_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/status_service.pb.h"

namespace lodestar::wire {
namespace {

// Sets every text of the message and of the messages inside it to `text`, with one entry in every
// list.
void Fill(google::protobuf::Message* message, const std::string& text, int depth = 0) {
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
    const auto* field = message->GetDescriptor()->field(i);
    if (field->type() == google::protobuf::FieldDescriptor::TYPE_STRING) {
      if (field->is_repeated()) {
        reflection->AddString(message, field, text);
      } else {
        reflection->SetString(message, field, text);
      }
    } else if (field->type() == google::protobuf::FieldDescriptor::TYPE_MESSAGE && depth < 4) {
      Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                : reflection->MutableMessage(message, field),
           text, depth + 1);
    }
  }
}

TEST(PeerTextsTest, NoTextOfAStatusReachesATerminalAsItWas) {
  v1::ClusterStatus status;
  Fill(&status, "a\x1b[2J");
  EscapeTexts(&status);
  EXPECT_EQ(status.state(), "a\\x1b[2J");
  EXPECT_EQ(status.workers(0).device(), "a\\x1b[2J");
  EXPECT_EQ(status.job().model().name(), "a\\x1b[2J");
  EXPECT_EQ(status.SerializeAsString().find('\x1b'), std::string::npos);
}

TEST(PeerTextsTest, BytesAndNumbersStay) {
  v1::ExportChunk chunk;
  chunk.set_data("\x1b\xff");
  chunk.mutable_source()->set_round(27);
  const std::string before = chunk.SerializeAsString();
  EscapeTexts(&chunk);
  EXPECT_EQ(chunk.SerializeAsString(), before);
}

}  // namespace
}  // namespace lodestar::wire
