#include "parallel/host_link.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include "parallel/mpi_module.h"

namespace tw {
namespace {

constexpr const char* kNeedsMpi =
    "several hosts need MPI: install it (Debian: openmpi-bin and libopenmpi-dev) and build again";

// Beside the program as built, or where it is installed.
std::filesystem::path find_module() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate :
       {folder / kMpiModuleFile, folder / "../lib/tilewright" / kMpiModuleFile}) {
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  }
  return {};
}

Expected<std::unique_ptr<HostTransport>> connect_by_mpi() {
  const std::filesystem::path path = find_module();
  if (path.empty()) {
    return error(ErrorCode::unsupported, "this build has no module for MPI ({}); {}",
                 kMpiModuleFile, kNeedsMpi);
  }
  // MPI's own modules look for its symbols, so these are for all; the module stays for good.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (module == nullptr) {
    return error(ErrorCode::unsupported, "{}: {}; {}", path.string(), dlerror(), kNeedsMpi);
  }
  const auto connect = reinterpret_cast<ConnectByMpi>(dlsym(module, kConnectByMpiName));
  if (connect == nullptr) {
    return error(ErrorCode::unsupported, "{}: is no module of this program", path.string());
  }
  Expected<std::unique_ptr<HostTransport>> transport;
  connect(TW_VERSION, transport);
  return transport;
}

}  // namespace

Expected<std::unique_ptr<HostLink>> HostLink::connect(int num_hosts) {
  auto transport = connect_by_mpi();
  if (!transport) {
    return error(transport.error().code, "--nnodes {}: {}", num_hosts, transport.error().message);
  }
  if (const int started = (*transport)->num_hosts(); started != num_hosts) {
    return error(ErrorCode::invalid_argument,
                 "--nnodes {}: {} process{} of MPI; start one on each host: mpirun -n {} "
                 "--map-by ppr:1:node --bind-to none tilewright ...",
                 num_hosts, started, started == 1 ? " was started, or none" : "es were started",
                 num_hosts);
  }
  return std::make_unique<HostLink>(std::move(*transport));
}

Status HostLink::exchange(std::span<const HostSend> sends, std::span<HostReceive> receives) {
  if (!status_) return status_;
  for (const HostSend& send : sends) {
    ++traffic_.messages;
    traffic_.bytes += static_cast<int64_t>(send.bytes.size());
  }
  status_ = transport_->transfer(sends, receives, timeout_);
  return status_;
}

Expected<std::vector<std::string>> HostLink::all_gather(std::string_view own) {
  std::vector<uint64_t> sizes(static_cast<size_t>(num_hosts()), own.size());
  std::vector<std::string> texts(sizes.size());
  std::vector<HostSend> sends;
  std::vector<HostReceive> receives;
  const auto of = [](uint64_t& size) { return std::as_writable_bytes(std::span(&size, 1)); };
  const auto self = static_cast<size_t>(host());
  for (size_t other = 0; other < sizes.size(); ++other) {
    if (other == self) continue;
    sends.push_back({static_cast<int>(other), of(sizes[self])});
    receives.push_back({static_cast<int>(other), of(sizes[other])});
  }
  if (Status status = exchange(sends, receives); !status) return forward_error(status);
  texts[self] = own;
  for (HostSend& send : sends) send.bytes = std::as_bytes(std::span(texts[self]));
  for (HostReceive& receive : receives) {
    const auto other = static_cast<size_t>(receive.host);
    texts[other].resize(sizes[other]);
    receive.room = std::as_writable_bytes(std::span(texts[other]));
  }
  if (Status status = exchange(sends, receives); !status) return forward_error(status);
  return texts;
}

void HostLink::abort(int exit_code) {
  transport_->abort(exit_code);
  std::abort();
}

// A text is empty or holds the code, a space and the message.
Status HostLink::agree(const Status& own) {
  std::string text;
  if (!own) text = fmt::format("{} {}", static_cast<int>(own.error().code), own.error().message);
  const auto texts = all_gather(text);
  if (!texts) return own ? tl::unexpected(texts.error()) : own;
  for (int from = 0; from < num_hosts(); ++from) {
    const std::string& theirs = (*texts)[static_cast<size_t>(from)];
    if (theirs.empty()) continue;
    const size_t space = theirs.find(' ');
    return error(static_cast<ErrorCode>(std::stoi(theirs)), "host {}: {}", from,
                 theirs.substr(space + 1));
  }
  return {};
}

}  // namespace tw
