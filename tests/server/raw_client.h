// A client that speaks through a bare socket, so that it can also behave badly.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tw {

struct RawResponse {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool complete = false;                       // as the headers said
};

class RawClient {
 public:
  // `receive_buffer`: bytes that the system takes in ahead of what is read here; 0: many.
  explicit RawClient(uint16_t port, int receive_buffer = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  // False when the server closed or reset the connection.
  bool send(std::string_view bytes);
  // A whole request; `headers` are lines that end in \r\n.
  bool request(std::string_view method, std::string_view target, std::string_view body = "",
               std::string_view headers = "");
  // The next response, waiting for it at most so long in all. `is_head`: there is no body.
  RawResponse response(std::chrono::milliseconds patience = std::chrono::seconds(20),
                       bool is_head = false);
  // Whatever comes until `mark` is part of it, the connection ends or time is up.
  std::string read_until(std::string_view mark,
                         std::chrono::milliseconds patience = std::chrono::seconds(20));
  // True when the server closes within that time; what it sends before is dropped.
  bool closed_within(std::chrono::milliseconds patience);

  void shutdown_sending();
  void close();
  void reset();  // closes with RST

 private:
  bool receive(std::chrono::steady_clock::time_point until);

  int socket_ = -1;
  bool ended_ = false;
  std::string received_;
};

}  // namespace tw
