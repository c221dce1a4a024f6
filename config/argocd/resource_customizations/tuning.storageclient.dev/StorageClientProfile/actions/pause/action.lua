if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["tuning.storageclient.dev/paused"] = "true"
return obj
