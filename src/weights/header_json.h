// The JSON of safetensors headers and indexes: objects of up to hundreds of thousands of tensors.
//
// core/json.h keeps the order of keys and looks them up one by one, which takes minutes on an index
// of that size; here keys are sorted. A key that appears twice in an object is an error: which of
// the two a reader takes is anyone's guess.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/status.h"

namespace tw {

using HeaderJson = nlohmann::json;

// An object, nested at most `max_depth` levels deep. `what` names the file in errors
// (corrupt_data).
Expected<HeaderJson> parse_header_json(std::string_view text, const std::string& what,
                                       int max_depth);

std::string dump_header_json(const HeaderJson& value, int indent = -1);

}  // namespace tw
