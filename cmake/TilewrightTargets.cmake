# Helpers that give every target of the project the same flags.
include_guard()

find_program(TW_CCACHE ccache)
if(TW_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TW_CCACHE})
endif()

# Off by default: a newer compiler than the project's own knows warnings that it never saw.
option(TW_WERROR "Treat compiler warnings as errors" OFF)
add_library(tw_flags INTERFACE)
target_compile_options(tw_flags INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
  -Wno-unused-parameter $<$<BOOL:${TW_WERROR}>:-Werror>)
target_include_directories(tw_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
if(TW_SANITIZE)
  # GCC's maybe-uninitialized takes the instrumentation for uses, in the standard library's code too;
  # mismatched-new-delete takes an instrumented pair of operators for strangers; tsan is about Asio's
  # fences, which the thread sanitizer doesn't see.
  target_compile_options(tw_flags INTERFACE -fsanitize=${TW_SANITIZE} -fno-omit-frame-pointer
    -fno-sanitize-recover=all $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized
    -Wno-mismatched-new-delete -Wno-tsan>)
  target_link_options(tw_flags INTERFACE -fsanitize=${TW_SANITIZE})
endif()

# tw_library(name SOURCES a.cc ... DEPS tw_core ...): one floor's static library.
function(tw_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC tw_flags ${arg_DEPS})
endfunction()

# tw_isa_sources(target ISA_FLAGS "..." SOURCES ...): sources of one instruction set, compiled with
# its flags alone. They must export no weak symbols; tests/kernels checks that with nm.
function(tw_isa_sources target)
  cmake_parse_arguments(arg "" "" "FLAGS;SOURCES" ${ARGN})
  target_sources(${target} PRIVATE ${arg_SOURCES})
  set_source_files_properties(${arg_SOURCES} TARGET_DIRECTORY ${target}
    PROPERTIES COMPILE_OPTIONS "${arg_FLAGS}")
endfunction()

# Seconds until a test counts as hanging; ten times as many under sanitizers.
function(tw_test_timeout name seconds)
  if(TW_SANITIZE)
    math(EXPR seconds "10 * ${seconds}")
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${seconds})
endfunction()

# tw_test(name SOURCES ... DEPS ...): a GoogleTest executable, one ctest entry per test program.
function(tw_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPS;ARGS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tw_flags ${arg_DEPS} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${name} PRIVATE TW_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name} ${arg_ARGS})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 600)
  endif()
  tw_test_timeout(${name} ${arg_TIMEOUT})
endfunction()

# tw_bench(name SOURCES ... DEPS ...): a benchmark program.
function(tw_bench name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tw_flags ${arg_DEPS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()
