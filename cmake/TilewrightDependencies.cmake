# Third-party libraries, all from the distribution's packages (see docs/dependencies.md).
include_guard()

find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(tl-expected 1.0 REQUIRED)
find_package(Boost 1.81 REQUIRED)  # headers only: Asio and Beast
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(CURL 7.85 REQUIRED)
if(TW_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
