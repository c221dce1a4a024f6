local hs = { status = "Progressing", message = "Waiting for the operator to observe this generation" }

if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return hs
end

local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is_true(name)
  return conditions[name] ~= nil and conditions[name].status == "True"
end

local function health(status, condition)
  hs.status = status
  if condition ~= nil then
    hs.message = condition.message
    if hs.message == nil or hs.message == "" then
      hs.message = condition.reason
    end
  end
  return hs
end

if is_true("Stalled") then
  return health("Degraded", conditions["Stalled"])
end

if is_true("Paused") then
  return health("Suspended", conditions["Paused"])
end

if is_true("Reconciling") then
  local reason = conditions["Reconciling"].reason
  if reason == "WaitingForWindow" or reason == "WaitingForApproval" or reason == "WaitingForEvidence" then
    return health("Suspended", conditions["Reconciling"])
  end
  return health("Progressing", conditions["Reconciling"])
end

if is_true("Ready") then
  return health("Healthy", conditions["Ready"])
end

return health("Progressing", conditions["Ready"])
